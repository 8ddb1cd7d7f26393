"""bdpq scenes, small Cascade Mask R-CNN: directed distance penalties (LookHere)."""

_base_ = "./_base_/cascade_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.lookhere))
