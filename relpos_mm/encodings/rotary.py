"""Rotary encodings' common parts: where tokens stand, and how pairs of channels turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import pi
from typing import Literal

import torch
from torch import Tensor

from .arguments import require_counts, require_positive
from .base import Padding, PositionEncoding
from .grid import Grid, Size, as_size
from .made_once import constant, made_once
from .precision import widen

Normalize = Literal["separate", "min", "max"]
AxisOrder = Literal["xy", "yx"]
Pairing = Literal["neighbour", "half"]


@made_once(maxsize=64)
def frequencies(
    head_dim: int, theta: float, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> Tensor:
    """``theta^(-4 t / d)`` for ``t < d / 4``; shape ``(d / 4,)``."""
    # On the CPU everywhere: another device's power may round differently.
    steps = torch.arange(0, head_dim, 4, dtype=dtype, device="cpu")
    return (theta ** (-steps / head_dim)).to(device)


def token_positions(
    grid: Grid,
    which: Literal["q", "k"],
    normalize_coords: Normalize | None,
    ref_size: Size | None,
    like: Tensor,
) -> Tensor:
    """Positions ``(B|1, N, 2)`` as (row, column) in float32 or better.

    Plain positions are those of :meth:`Grid.coords`. With ``ref_size`` the content is rescaled to
    that many tokens. Normalised ones are token centres in [-1, 1], times 2 pi, over the content of
    each axis (``separate``) or of the smaller or larger side. Content is the valid region of each
    image where known, else the whole grid.

    Args:
        grid: Where the tokens stand.
        which: Queries or keys.
        normalize_coords: Side to normalise by.
        ref_size: Reference grid ``(H, W)``.
        like: Tensor whose device is used, and float64 if it is that.
    """
    dtype = widen(like).dtype
    if normalize_coords is None and ref_size is None:
        return grid.coords(which, like.device).to(dtype)[None]
    size = grid.q if which == "q" else grid.k
    rows, columns = (torch.arange(side, dtype=dtype, device=like.device) for side in size)
    index = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), dim=-1).flatten(0, 1)
    valid = (grid.q,) if grid.valid is None else tuple(grid.valid)
    content = constant(valid, dtype, like.device).unsqueeze(1)
    if which == "k":
        pooling = tuple(k / q for q, k in zip(grid.q, grid.k, strict=True))
        content = content * constant(pooling, dtype, like.device)
    if ref_size is not None:
        return index / content * constant(ref_size, dtype, like.device)
    if normalize_coords != "separate":
        side = content.amin(-1) if normalize_coords == "min" else content.amax(-1)
        content = side[..., None]
    return 2 * pi * (2 * (index + 0.5) / content - 1)


def turn(x: Tensor, angles: Tensor, pairing: Pairing) -> Tensor:
    """Rotate pairs of channels of ``x (B, h, N, d)`` by ``angles (B|1, 1|h, M, d / 2)``.

    ``neighbour`` pairs channels (2 t, 2 t + 1), ``half`` pairs (t, t + d / 2). N may be a multiple
    of M: several frames of keys then share the angles of one.

    Raises:
        ValueError: The tokens do not fit the angles.
    """
    if x.shape[2] != angles.shape[2]:
        if x.shape[2] % angles.shape[2]:
            raise ValueError(
                f"rotary encoding: {x.shape[2]} tokens do not fit a grid of {angles.shape[2]}"
            )
        angles = angles.repeat(1, 1, x.shape[2] // angles.shape[2], 1)
    cos, sin = angles.cos(), angles.sin()
    if pairing == "neighbour":
        first, second = widen(x).unflatten(-1, (-1, 2)).unbind(-1)
    else:
        first, second = widen(x).chunk(2, dim=-1)
    turned = (first * cos - second * sin, first * sin + second * cos)
    if pairing == "neighbour":
        return torch.stack(turned, dim=-1).flatten(-2).to(x.dtype)
    return torch.cat(turned, dim=-1).to(x.dtype)


class Rotary(PositionEncoding, ABC):
    """What axial and mixed rotary encodings share: options, and turning q and k by ``angles``.

    Raises:
        ValueError: A head width that is no multiple of 4 (two axes of channel pairs), or an unknown
            or contradicting option.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        normalize_coords: Normalize | None,
        ref_size: int | Size | None,
        axis_order: AxisOrder,
        pairing: Pairing,
        theta: float,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        for option, value, known in (
            ("normalize_coords", normalize_coords, (None, "separate", "min", "max")),
            ("axis_order", axis_order, ("xy", "yx")),
            ("pairing", pairing, ("neighbour", "half")),
        ):
            if value not in known:
                raise ValueError(
                    f"{name}: {option}={value!r} is none of {', '.join(map(str, known))}"
                )
        if normalize_coords is not None and ref_size is not None:
            raise ValueError(f"{name}: ref_size rescales indices, normalize_coords has none")
        require_counts(name, embed_dims=embed_dims, num_heads=num_heads)
        if embed_dims % num_heads or embed_dims // num_heads % 4:
            raise ValueError(
                f"{name}: the head width must be a multiple of 4, got embed_dims={embed_dims} over "
                f"num_heads={num_heads}"
            )
        require_positive(name, theta=theta)
        self.head_dim = embed_dims // num_heads
        self.normalize_coords = normalize_coords
        self.ref_size = None if ref_size is None else as_size(f"{name}: ref_size", ref_size)
        self.axis_order = axis_order
        self.pairing = pairing
        # Content that is stretched to a fixed range needs to know where it ends.
        fixed = normalize_coords is None and ref_size is None
        self.padding: Padding = "safe" if fixed else "needs_valid"

    @abstractmethod
    def angles(self, positions: Tensor) -> Tensor:
        """Angle of every token and pair of channels.

        Args:
            positions: ``(B|1, N, 2)``, the first axis of ``axis_order`` before the other.

        Returns:
            ``(B|1, 1|h, N, d / 2)`` in the dtype of the positions.
        """

    def rotate(self, q: Tensor, k: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
        of_queries = self.angles(self._positions(grid, "q", q))
        of_keys = of_queries if grid.k == grid.q else self.angles(self._positions(grid, "k", k))
        return turn(q, of_queries, self.pairing), turn(k, of_keys, self.pairing)

    def _positions(self, grid: Grid, which: Literal["q", "k"], like: Tensor) -> Tensor:
        positions = token_positions(grid, which, self.normalize_coords, self.ref_size, like)
        return positions.flip(-1) if self.axis_order == "xy" else positions

    def extra_repr(self) -> str:
        return (
            f"head_dim={self.head_dim}, normalize_coords={self.normalize_coords}, "
            f"ref_size={self.ref_size}, {self.axis_order}, {self.pairing}"
        )
