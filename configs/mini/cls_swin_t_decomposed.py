"""bdpq letters, small classifier: decomposed relative position."""

_base_ = "./_base_/cls_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.decomposed))
