"""bdpq scenes, small Cascade Mask R-CNN: axial rotary encoding."""

_base_ = "./_base_/cascade_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.rope_axial))
