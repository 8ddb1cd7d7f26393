"""bdpq scenes, small Cascade Mask R-CNN: convolutional encoding (PEG)."""

_base_ = "./_base_/cascade_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.peg))
