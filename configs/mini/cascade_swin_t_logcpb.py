"""bdpq scenes, small Cascade Mask R-CNN: log-spaced continuous bias, cosine attention."""

_base_ = "./_base_/cascade_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.logcpb))
