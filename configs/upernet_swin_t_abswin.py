"""ADE20K, UperNet 160k, Swin-T: absolute-win embedding."""

_base_ = "./_base_/upernet_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.abswin))
