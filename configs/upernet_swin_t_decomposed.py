"""ADE20K, UperNet 160k, Swin-T: decomposed relative position."""

_base_ = "./_base_/upernet_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.decomposed))
