"""Models: the Swin backbone and the attention function that carries every encoding."""

from .attention import attend
from .swin import RelPosSwin

__all__ = ["RelPosSwin", "attend"]
