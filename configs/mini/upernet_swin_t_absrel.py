"""bdpq scenes, small UperNet: absolute table and relative position bias."""

_base_ = "./_base_/upernet_swin_t.py"

model = dict(backbone=dict(position=[dict(type="AbsoluteTable"), dict(type="RelativeBias")]))
