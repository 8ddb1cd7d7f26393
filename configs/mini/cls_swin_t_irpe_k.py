"""bdpq letters, small classifier: iRPE on keys."""

_base_ = "./_base_/cls_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.irpe_k))
