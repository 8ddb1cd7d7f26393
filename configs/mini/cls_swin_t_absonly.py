"""bdpq letters, small classifier: absolute position table only."""

_base_ = "./_base_/cls_swin_t.py"

model = dict(backbone=dict(position=[dict(type="AbsoluteTable")]))
