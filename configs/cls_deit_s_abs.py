"""ImageNet-1k, DeiT-S: the published absolute table alone."""

_base_ = "./_base_/cls_deit_s.py"

model = dict(backbone=dict(position=[dict(type="AbsoluteTable")]))
