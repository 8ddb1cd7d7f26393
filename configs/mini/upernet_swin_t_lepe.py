"""bdpq scenes, small UperNet: locally enhanced encoding (LePE)."""

_base_ = "./_base_/upernet_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.lepe))
