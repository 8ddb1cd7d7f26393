"""ImageNet-1k, 300 epochs, Swin-T: absolute position embedding only."""

_base_ = "./_base_/cls_swin_t.py"

model = dict(backbone=dict(position=[dict(type="AbsoluteTable")]))
