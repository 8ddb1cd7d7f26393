"""bdpq scenes, small UperNet: relative position bias, no content term."""

_base_ = "./_base_/upernet_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.biasonly))
