"""ADE20K, UperNet 160k, Swin-T: no position encoding."""

_base_ = "./_base_/upernet_swin_t.py"

model = dict(backbone=dict(position=[]))
