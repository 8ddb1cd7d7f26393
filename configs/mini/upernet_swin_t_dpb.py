"""bdpq scenes, small UperNet: dynamic position bias."""

_base_ = "./_base_/upernet_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.dpb))
