"""One usual setting of every encoding, for benchmarks, cost tables and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relpos_mm.encodings import PositionEncoding
from relpos_mm.encodings.grid import Size
from relpos_mm.engine.errors import UserError
from relpos_mm.registry import build_positions

Position = tuple[dict[str, Any], ...]

CATALOGUE: dict[str, Position] = {
    "abs": ({"type": "AbsoluteTable"},),
    "sin2d": ({"type": "Sinusoid2d"},),
    "abswin": ({"type": "AbsoluteWin"},),
    "rel": ({"type": "RelativeBias"},),
    "biasonly": ({"type": "RelativeBias", "content": False},),
    "dpb": ({"type": "DynamicBias"},),
    "logcpb": ({"type": "LogCoordBias"},),
    "logcpb_cosine": ({"type": "LogCoordBias", "cosine": True},),
    "alibi": ({"type": "Alibi2d"},),
    "lookhere": ({"type": "DirectedDistance"},),
    "shaw": ({"type": "ShawRelative"},),
    "shaw_values": ({"type": "ShawRelative", "values": True},),
    "huang": ({"type": "HuangRelative"},),
    "txl": ({"type": "TransformerXLRelative"},),
    "sasa": ({"type": "SasaRelative"},),
    "decomposed": ({"type": "DecomposedBias"},),
    "disentangled": ({"type": "Disentangled"},),
    "irpe_bias": ({"type": "ContextualRpe", "mode": "bias"},),
    "irpe_k": ({"type": "ContextualRpe", "rpe_on": "k"},),
    "irpe_qk": ({"type": "ContextualRpe", "rpe_on": "qk"},),
    "irpe_v": ({"type": "ContextualRpe", "rpe_on": "v"},),
    "irpe_qkv": ({"type": "ContextualRpe", "rpe_on": "qkv"},),
    "rope_axial": ({"type": "AxialRope"},),
    "rope_mixed": ({"type": "MixedRope"},),
    "peg": ({"type": "ConvPosition"},),
    "lepe": ({"type": "LocalEnhanced"},),
}


def position_of(name: str) -> Position:
    """Return the ``position`` list of a name.

    Raises:
        UserError: There is no such name.
    """
    if name not in CATALOGUE:
        raise UserError(f"no encoding is called {name!r}; known: {', '.join(CATALOGUE)}")
    return CATALOGUE[name]


def build(
    position: Sequence[dict[str, Any]],
    *,
    grid: Size,
    embed_dims: int,
    num_heads: int,
    layer: int = 0,
    depth: int = 12,
) -> list[PositionEncoding]:
    """Build a list for one attention call on ``grid``, which is also what its tables cover."""
    return build_positions(
        position,
        embed_dims=embed_dims,
        num_heads=num_heads,
        window_size=grid,
        grid_size=grid,
        layer=layer,
        depth=depth,
    )
