"""bdpq scenes, small Cascade Mask R-CNN: absolute table and relative position bias."""

_base_ = "./_base_/cascade_swin_t.py"

model = dict(backbone=dict(position=[dict(type="AbsoluteTable"), dict(type="RelativeBias")]))
