"""bdpq letters, small classifier: mixed rotary encoding."""

_base_ = "./_base_/cls_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.rope_mixed))
