"""Distances between the tokens of a grid, and the head slopes that weigh them."""

from __future__ import annotations

from math import floor, log2

import torch
from torch import Tensor

from .grid import Grid, Size
from .made_once import made_once
from .offsets import as_table, offset_set


def distances(grid: Grid, device: torch.device | str) -> Tensor:
    """Euclidean distances ``(Nq, Nk)`` in key units times ``Grid.step``, float32."""
    return _distances(grid.q, grid.k, grid.step, device)


def offset_distances(grid: Grid, device: torch.device | str) -> Tensor | None:
    """Distance of every offset ``(2 H - 1, 2 W - 1)``; None where grids differ."""
    offsets = offset_set(grid.q, grid.k, grid.step, device)[0]
    table = as_table(offsets.square().sum(-1, keepdim=True).sqrt(), grid)
    return None if table is None else table[0]


@made_once(maxsize=32)
def _distances(
    query_size: Size, key_size: Size, step: tuple[float, float], device: torch.device | str
) -> Tensor:
    return Grid(query_size, key_size, step=step).offsets(device).square().sum(-1).sqrt()


def geometric_slopes(num_heads: int) -> list[float]:
    """ALiBi's slopes: ``2^(-8 / h)`` and its powers, for other h the public code's mixture.

    Where h is no power of two the slopes of the next smaller power come first, then every other
    slope of twice that power.
    """
    power = 2 ** floor(log2(num_heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    between = [2 ** (-4 * (i + 1) / power) for i in range(0, 2 * (num_heads - power), 2)]
    return slopes + between
