"""bdpq scenes, small Cascade Mask R-CNN: relative position bias only."""

_base_ = "./_base_/cascade_swin_t.py"

model = dict(backbone=dict(position=[dict(type="RelativeBias")]))
