"""bdpq letters, small classifier: Shaw's relative vectors on keys."""

_base_ = "./_base_/cls_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.shaw))
