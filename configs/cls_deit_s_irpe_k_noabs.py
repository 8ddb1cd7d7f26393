"""ImageNet-1k, DeiT-S: iRPE on keys, without an absolute table."""

_base_ = "./_base_/cls_deit_s.py"

model = dict(backbone=dict(position=[dict(**_base_.irpe, rpe_on="k")]))
