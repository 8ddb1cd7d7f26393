"""bdpq scenes, small UperNet: absolute position table only."""

_base_ = "./_base_/upernet_swin_t.py"

model = dict(backbone=dict(position=[dict(type="AbsoluteTable")]))
