"""bdpq scenes, small UperNet: axial rotary encoding."""

_base_ = "./_base_/upernet_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.rope_axial))
