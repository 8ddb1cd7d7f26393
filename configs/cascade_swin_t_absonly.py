"""COCO, Cascade Mask R-CNN 3x, Swin-T: absolute position embedding only."""

_base_ = "./_base_/cascade_swin_t.py"

model = dict(backbone=dict(position=[dict(type="AbsoluteTable")]))
