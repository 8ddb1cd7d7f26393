"""ADE20K, UperNet 160k, Swin-T: relative position bias only, as published."""

_base_ = "./_base_/upernet_swin_t.py"

model = dict(backbone=dict(position=[dict(type="RelativeBias")]))
