"""bdpq letters, small classifier: axial rotary encoding."""

_base_ = "./_base_/cls_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.rope_axial))
