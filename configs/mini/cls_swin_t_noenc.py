"""bdpq letters, small classifier: no position encoding."""

_base_ = "./_base_/cls_swin_t.py"

model = dict(backbone=dict(position=[]))
