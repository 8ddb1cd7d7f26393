"""COCO, Cascade Mask R-CNN 3x, Swin-T: relative position bias only, as published."""

_base_ = "./_base_/cascade_swin_t.py"

model = dict(backbone=dict(position=[dict(type="RelativeBias")]))
