"""bdpq scenes, small UperNet: Shaw's relative vectors on keys."""

_base_ = "./_base_/upernet_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.shaw))
