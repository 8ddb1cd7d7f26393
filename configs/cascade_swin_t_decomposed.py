"""COCO, Cascade Mask R-CNN 3x, Swin-T: decomposed relative position."""

_base_ = "./_base_/cascade_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.decomposed))
