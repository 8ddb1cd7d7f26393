"""COCO, DETR with ResNet-50: the published sines alone."""

_base_ = "./_base_/detr_r50.py"

model = dict(encoder=dict(position=[_base_.sines]))
