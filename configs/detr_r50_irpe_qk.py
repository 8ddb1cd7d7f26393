"""COCO, DETR with ResNet-50: sines, and iRPE on queries and keys."""

_base_ = "./_base_/detr_r50.py"

model = dict(encoder=dict(position=[_base_.sines, dict(**_base_.irpe, rpe_on="qk")]))
