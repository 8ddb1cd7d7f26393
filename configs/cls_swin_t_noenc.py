"""ImageNet-1k, 300 epochs, Swin-T: no position encoding."""

_base_ = "./_base_/cls_swin_t.py"

model = dict(backbone=dict(position=[]))
