"""The distinct offsets of a grid, for encodings that compute their bias instead of storing it."""

from __future__ import annotations

import torch
from torch import Tensor

from .grid import Grid, Size
from .made_once import made_once


@made_once(maxsize=64)
def offset_set(
    query_size: Size,
    key_size: Size,
    step: tuple[float, float] = (1.0, 1.0),
    device: torch.device | str = "cpu",
) -> tuple[Tensor, Tensor]:
    """Every distinct offset once, and which of them each query/key pair has.

    Equal grids give the "mother set" of all ``(2 H - 1)(2 W - 1)`` offsets in row-major order from
    the most negative one on. Pooled queries stand where :meth:`Grid.coords` puts them, which may be
    between keys.

    Args:
        query_size: Query grid ``(H, W)``.
        key_size: Key grid ``(H, W)``.
        step: Distance between neighbouring keys (rows, columns).
        device: Where the tensors are wanted; part of the cache key.

    Returns:
        Offsets ``(P, 2)``, query minus key, rows first, float32; and an int64 index ``(Nq, Nk)``
        into them.
    """
    axes = zip(query_size, key_size, step, strict=True)
    (dy, row), (dx, column) = (axis_set(*axis, device) for axis in axes)
    offsets = torch.cartesian_prod(dy, dx).reshape(-1, 2)
    index = row[:, None, :, None] * len(dx) + column[None, :, None, :]
    # (Hq, Wq, Hk, Wk) -> (Nq, Nk)
    return offsets, index.reshape(query_size[0] * query_size[1], key_size[0] * key_size[1])


def gather_bias(table: Tensor, index: Tensor) -> Tensor:
    """Spread one row of heads per offset, ``(P, h)``, to the pairs: ``(1, h, Nq, Nk)``."""
    pairs = table.index_select(0, index.flatten()).view(*index.shape, -1)
    return pairs.permute(2, 0, 1).unsqueeze(0)


def as_table(by_offset: Tensor, grid: Grid) -> Tensor | None:
    """Rows ``(P, h)`` of :func:`offset_set` as ``(h, 2 H - 1, 2 W - 1)``; None on unequal grids."""
    if grid.q != grid.k:
        return None
    return by_offset.unflatten(0, (2 * grid.q[0] - 1, -1)).permute(2, 0, 1)


def axis_set(
    num_queries: int, num_keys: int, step: float, device: torch.device | str
) -> tuple[Tensor, Tensor]:
    """Distinct offsets along one axis ``(P,)`` in rising order and their index ``(nq, nk)``."""
    if num_queries == num_keys:  # without a search, whose result has no shape known before
        tokens = torch.arange(num_keys, device=device)
        every = torch.arange(1 - num_keys, num_keys, dtype=torch.float64, device=device)
        index = tokens[:, None] - tokens[None, :] + num_keys - 1
        return every.mul(step).round(decimals=6).float(), index
    queries = torch.arange(num_queries, dtype=torch.float64, device=device)
    keys = torch.arange(num_keys, dtype=torch.float64, device=device)
    offsets = queries[:, None] * (num_keys / num_queries) - keys[None, :]
    # Thirds and the like differ in their last digit from pair to pair.
    distinct, index = torch.unique(offsets.mul(step).round(decimals=6), return_inverse=True)
    return distinct.float(), index
