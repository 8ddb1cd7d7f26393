"""bdpq letters, small classifier: relative position bias, no content term."""

_base_ = "./_base_/cls_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.biasonly))
