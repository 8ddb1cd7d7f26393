"""bdpq scenes, small Cascade Mask R-CNN: relative position bias, no content term."""

_base_ = "./_base_/cascade_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.biasonly))
