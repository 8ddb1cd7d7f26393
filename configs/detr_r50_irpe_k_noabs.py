"""COCO, DETR with ResNet-50: iRPE on keys, without sines."""

_base_ = "./_base_/detr_r50.py"

model = dict(encoder=dict(position=[dict(**_base_.irpe, rpe_on="k")]))
