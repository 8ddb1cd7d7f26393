"""ADE20K, UperNet 160k, Swin-T: axial rotary encoding."""

_base_ = "./_base_/upernet_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.rope_axial))
