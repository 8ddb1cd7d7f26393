"""bdpq scenes, small DETR: sines, and iRPE on queries, keys and values."""

_base_ = "./_base_/detr_r50.py"

model = dict(encoder=dict(position=[_base_.sines, dict(**_base_.irpe, rpe_on="qkv")]))
