"""Position encodings, one per file. A new one needs its file and one import line here."""

from .absolute_table import AbsoluteTable
from .base import PositionEncoding, Resized, position_modules
from .contextual_rpe import ContextualRpe
from .grid import Grid
from .relative_bias import RelativeBias
from .sinusoid2d import Sinusoid2d
from .slugs import position_slug

__all__ = [
    "AbsoluteTable",
    "ContextualRpe",
    "Grid",
    "PositionEncoding",
    "RelativeBias",
    "Resized",
    "Sinusoid2d",
    "position_modules",
    "position_slug",
]
