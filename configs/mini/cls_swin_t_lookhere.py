"""bdpq letters, small classifier: directed distance penalties (LookHere)."""

_base_ = "./_base_/cls_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.lookhere))
