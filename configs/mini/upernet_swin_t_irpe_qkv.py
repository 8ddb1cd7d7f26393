"""bdpq scenes, small UperNet: iRPE on queries, keys, values."""

_base_ = "./_base_/upernet_swin_t.py"

model = dict(backbone=dict(position=_base_.positions.irpe_qkv))
