"""bdpq scenes, small UperNet: convolutional encoding (PEG)."""

_base_ = "./_base_/upernet_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.peg))
