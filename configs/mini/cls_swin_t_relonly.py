"""bdpq letters, small classifier: relative position bias only."""

_base_ = "./_base_/cls_swin_t.py"

model = dict(backbone=dict(position=[dict(type="RelativeBias")]))
