"""Models: hosts of the encodings, and the attention function that carries every one of them.

``RelPosDETR`` stands in :mod:`relpos_mm.models.detr`, which needs mmdet.
"""

from .attention import attend
from .detr_encoder import RelPosDetrEncoder
from .forms import use_impl
from .swin import RelPosSwin
from .vit import RelPosViT

__all__ = ["RelPosDetrEncoder", "RelPosSwin", "RelPosViT", "attend", "use_impl"]
