"""bdpq letters, small classifier: iRPE on queries, keys, values."""

_base_ = "./_base_/cls_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.irpe_qkv))
