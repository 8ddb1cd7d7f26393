"""bdpq scenes, small UperNet: absolute-win embedding."""

_base_ = "./_base_/upernet_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.abswin))
