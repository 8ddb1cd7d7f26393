"""bdpq letters, small classifier: 2-D sine and cosine embedding."""

_base_ = "./_base_/cls_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.sin2d))
