"""COCO, Cascade Mask R-CNN 3x, Swin-T: iRPE on queries, keys, values."""

_base_ = "./_base_/cascade_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.irpe_qkv))
