"""ImageNet-1k, 300 epochs, Swin-T: relative position bias only, as published."""

_base_ = "./_base_/cls_swin_t.py"

model = dict(backbone=dict(position=[dict(type="RelativeBias")]))
