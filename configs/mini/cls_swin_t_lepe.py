"""bdpq letters, small classifier: locally enhanced encoding (LePE)."""

_base_ = "./_base_/cls_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.lepe))
