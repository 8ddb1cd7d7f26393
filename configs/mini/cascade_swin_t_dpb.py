"""bdpq scenes, small Cascade Mask R-CNN: dynamic position bias."""

_base_ = "./_base_/cascade_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.dpb))
