"""bdpq scenes, small Cascade Mask R-CNN: absolute position table only."""

_base_ = "./_base_/cascade_swin_t.py"

model = dict(backbone=dict(position=[dict(type="AbsoluteTable")]))
