"""bdpq letters, small classifier: convolutional encoding (PEG)."""

_base_ = "./_base_/cls_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.peg))
