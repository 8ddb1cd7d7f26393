"""ADE20K, UperNet 160k, Swin-T: directed distance penalties (LookHere)."""

_base_ = "./_base_/upernet_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.lookhere))
