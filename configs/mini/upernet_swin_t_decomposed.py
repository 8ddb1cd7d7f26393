"""bdpq scenes, small UperNet: decomposed relative position."""

_base_ = "./_base_/upernet_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.decomposed))
