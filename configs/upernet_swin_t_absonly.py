"""ADE20K, UperNet 160k, Swin-T: absolute position embedding only."""

_base_ = "./_base_/upernet_swin_t.py"

model = dict(backbone=dict(position=[dict(type="AbsoluteTable")]))
