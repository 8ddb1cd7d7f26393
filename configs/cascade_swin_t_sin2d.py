"""COCO, Cascade Mask R-CNN 3x, Swin-T: 2-D sine and cosine embedding."""

_base_ = "./_base_/cascade_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.sin2d))
