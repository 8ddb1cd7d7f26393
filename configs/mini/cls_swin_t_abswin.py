"""bdpq letters, small classifier: absolute-win embedding."""

_base_ = "./_base_/cls_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.abswin))
