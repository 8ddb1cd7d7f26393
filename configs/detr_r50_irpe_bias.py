"""COCO, DETR with ResNet-50: sines, and a number per bucket (iRPE's bias mode)."""

_base_ = "./_base_/detr_r50.py"

model = dict(encoder=dict(position=[_base_.sines, dict(**_base_.irpe, mode="bias")]))
