"""bdpq scenes, small Cascade Mask R-CNN: no position encoding."""

_base_ = "./_base_/cascade_swin_t.py"

model = dict(backbone=dict(position=[]))
