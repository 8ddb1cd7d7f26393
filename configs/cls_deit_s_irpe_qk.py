"""ImageNet-1k, DeiT-S: absolute table, and iRPE on queries and keys."""

_base_ = "./_base_/cls_deit_s.py"

model = dict(backbone=dict(position=[dict(type="AbsoluteTable"), dict(**_base_.irpe, rpe_on="qk")]))
