"""Position encodings, one per file. A new one needs its file and one import line here."""

from .absolute_table import AbsoluteTable
from .absolute_win import AbsoluteWin
from .alibi2d import Alibi2d
from .axial_rope import AxialRope
from .base import PositionEncoding, Resized, position_modules
from .contextual_rpe import ContextualRpe
from .conv_position import ConvPosition
from .decomposed_bias import DecomposedBias
from .directed_distance import DirectedDistance
from .disentangled import Disentangled
from .dynamic_bias import DynamicBias
from .grid import Grid
from .huang_relative import HuangRelative
from .local_enhanced import LocalEnhanced
from .log_coord_bias import LogCoordBias
from .mixed_rope import MixedRope
from .relative_bias import RelativeBias
from .sasa_relative import SasaRelative
from .shaw_relative import ShawRelative
from .sinusoid2d import Sinusoid2d
from .slugs import position_slug
from .transformer_xl_relative import TransformerXLRelative

__all__ = [
    "AbsoluteTable",
    "AbsoluteWin",
    "Alibi2d",
    "AxialRope",
    "ContextualRpe",
    "ConvPosition",
    "DecomposedBias",
    "DirectedDistance",
    "Disentangled",
    "DynamicBias",
    "Grid",
    "HuangRelative",
    "LocalEnhanced",
    "LogCoordBias",
    "MixedRope",
    "PositionEncoding",
    "RelativeBias",
    "Resized",
    "SasaRelative",
    "ShawRelative",
    "Sinusoid2d",
    "TransformerXLRelative",
    "position_modules",
    "position_slug",
]
