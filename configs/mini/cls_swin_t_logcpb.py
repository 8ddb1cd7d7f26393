"""bdpq letters, small classifier: log-spaced continuous bias, cosine attention."""

_base_ = "./_base_/cls_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.logcpb))
