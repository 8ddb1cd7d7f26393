"""Mixed rotary encoding: learned frequencies along both axes, per head."""

from __future__ import annotations

from math import pi
from typing import ClassVar

import torch
from torch import Tensor, nn

from relpos_mm.registry import POSITIONS

from .grid import Size
from .precision import widen
from .rotary import AxisOrder, Normalize, Pairing, Rotary, frequencies


@POSITIONS.register_module()
class MixedRope(Rotary):
    """Pair t of head n turns by ``fx[n, t] x + fy[n, t] y`` with learned ``rope_freqs = (fx, fy)``.

    Source: "Rotary Position Embedding for Vision Transformer" (RoPE-Mixed). Defaults are rope-vit's
    for ViT and Swin: theta 10, positions are indices, ``rope_freqs (2, h, d / 2)`` holds the
    column's frequencies first (``xy``), neighbouring channels are pairs. It starts as the axial
    set, turned by one random angle per head. Never decayed, as released. Scale, sign and position
    options are those of :class:`~relpos_mm.encodings.axial_rope.AxialRope`.

    Frequencies do not depend on the size of the map: indices extrapolate, normalised positions
    interpolate. Angles are float32 or better whatever the model runs in.

    Args:
        embed_dims: Channels C.
        num_heads: Heads h; the head width must be a multiple of 4.
        normalize_coords: As in ``AxialRope``, like ``ref_size`` and ``pairing``.
        axis_order: Which axis the first row of ``rope_freqs`` belongs to.
        theta: Base of the initial frequencies.
        random_axes: Turn the initial axes of each head by a random angle.

    Raises:
        ValueError: A head width that is no multiple of 4, or an unknown option.
    """

    slug: ClassVar[str] = "rope_mixed"
    free: ClassVar[frozenset[str]] = frozenset({"theta", "random_axes"})

    def __init__(
        self,
        *,
        embed_dims: int,
        num_heads: int,
        normalize_coords: Normalize | None = None,
        ref_size: int | Size | None = None,
        axis_order: AxisOrder = "xy",
        pairing: Pairing = "neighbour",
        theta: float = 10.0,
        random_axes: bool = True,
    ) -> None:
        super().__init__(
            embed_dims, num_heads, normalize_coords, ref_size, axis_order, pairing, theta
        )
        turns = torch.rand(num_heads) if random_axes else torch.zeros(num_heads)
        self.rope_freqs = nn.Parameter(mixed_frequencies(self.head_dim, theta, turns))

    def angles(self, positions: Tensor) -> Tensor:
        first, second = positions[:, None].unsqueeze(-2).unbind(-1)  # (B|1, 1, N, 1)
        bands = widen(self.rope_freqs).to(positions.dtype).unsqueeze(2)  # (2, h, 1, d / 2)
        return first * bands[0] + second * bands[1]


def mixed_frequencies(head_dim: int, theta: float, turns: Tensor) -> Tensor:
    """Initial ``(2, h, d / 2)``: crossed axes per head, turned by ``turns (h,)`` full circles."""
    bands = frequencies(head_dim, theta, torch.float32, turns.device)
    angle = 2 * pi * turns[:, None]
    axes = torch.cat((angle.expand(-1, len(bands)), (angle + pi / 2).expand(-1, len(bands))), dim=1)
    return torch.stack((axes.cos(), axes.sin())) * bands.repeat(2)
