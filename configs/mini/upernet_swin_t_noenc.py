"""bdpq scenes, small UperNet: no position encoding."""

_base_ = "./_base_/upernet_swin_t.py"

model = dict(backbone=dict(position=[]))
