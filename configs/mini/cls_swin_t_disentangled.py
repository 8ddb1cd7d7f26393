"""bdpq letters, small classifier: disentangled attention."""

_base_ = "./_base_/cls_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.disentangled))
