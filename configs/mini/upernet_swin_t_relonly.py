"""bdpq scenes, small UperNet: relative position bias only."""

_base_ = "./_base_/upernet_swin_t.py"

model = dict(backbone=dict(position=[dict(type="RelativeBias")]))
