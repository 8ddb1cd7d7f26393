"""How well families of functions of the offset fit a relative bias table, head by head."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from relpos_mm.encodings import DynamicBias, LogCoordBias
from relpos_mm.encodings.base import PositionEncoding
from relpos_mm.encodings.grid import Grid, Size
from relpos_mm.encodings.irpe_buckets import BucketRule
from relpos_mm.encodings.offsets import offset_set
from relpos_mm.transfer.table_fit import fit_table

Form = Callable[[Tensor, Size], Tensor]
# The width that DPB has where its host has 32 channels per head, as in every released Swin.
_HEAD_WIDTH = 32


def offset_table(encoding: PositionEncoding, window: Size, num_heads: int) -> Tensor:
    """Return the bias of a content-free encoding as a table ``(P, h)``, rows by rising offset."""
    index = offset_set(window, window)[1].flatten()
    blank = torch.zeros(1, num_heads, window[0] * window[1], 1)
    with torch.no_grad():
        bias = encoding.bias(blank, blank, Grid(window), 1.0)
    if not isinstance(bias, Tensor):
        raise TypeError(f"{encoding.name}: its bias is no table of offsets")
    table = bias.new_zeros(int(index.max()) + 1, num_heads)
    table[index] = bias[0].expand(num_heads, -1, -1).flatten(1).t()
    return table


def dpb(table: Tensor, window: Size, hidden: str = "code") -> Tensor:
    """Nearest DynamicBias, by the fit that transfers a table to it."""
    heads = table.shape[1]
    encoding = DynamicBias(embed_dims=_HEAD_WIDTH * heads, num_heads=heads, hidden=hidden)  # type: ignore[arg-type]
    return _fitted(encoding, table, window)


def cpb(table: Tensor, window: Size) -> Tensor:
    """Nearest LogCoordBias, by the fit that transfers a table to it."""
    encoding = LogCoordBias(num_heads=table.shape[1], window_size=window)
    return _fitted(encoding, table, window)


def _fitted(encoding: DynamicBias | LogCoordBias, table: Tensor, window: Size) -> Tensor:
    state = fit_table(encoding, table, window).state
    with torch.no_grad():
        for name, parameter in encoding.to(table.dtype).named_parameters():
            parameter.copy_(state[name])
    return offset_table(encoding, window, table.shape[1]).to(table.dtype)


def separable(table: Tensor, window: Size) -> Tensor:
    """Sum of a function of the row offset and one of the column offset."""
    grid = _grid(table, window)
    return _rows(grid.mean(2, keepdim=True) + grid.mean(1, keepdim=True) - grid.mean((1, 2), True))


def low_rank(table: Tensor, window: Size, rank: int) -> Tensor:
    """Constant plus ``rank`` products of a function of the rows and one of the columns."""
    grid = _grid(table, window)
    middle = grid.mean((1, 2), keepdim=True)
    u, s, v = torch.linalg.svd(grid - middle, full_matrices=False)
    return _rows((u[:, :, :rank] * s[:, None, :rank]) @ v[:, :rank] + middle)


def distance(table: Tensor, window: Size) -> Tensor:
    """Any function of the Euclidean distance: the mean over offsets of one length."""
    return _grouped(table, offset_set(window, window)[0].square().sum(1))


def slope(table: Tensor, window: Size) -> Tensor:
    """ALiBi's form, a constant minus a slope per token of distance."""
    length = offset_set(window, window)[0].norm(dim=1).to(table.dtype)
    design = torch.stack((torch.ones_like(length), length), dim=1)
    return design @ torch.linalg.lstsq(design, table).solution


def buckets(table: Tensor, window: Size) -> Tensor:
    """A number per product bucket of iRPE at its usual ratio: the mean over the bucket."""
    rule = BucketRule("product", 1.9)
    row, column = rule.axis_index(offset_set(window, window)[0]).unbind(1)
    return _grouped(table, row * (2 * rule.bound + 1) + column)


FORMS: dict[str, Form] = {
    "DPB, C/16": dpb,
    "DPB, C/4": lambda table, window: dpb(table, window, "paper"),
    "CPB": cpb,
    "rows + columns": separable,
    "rank 1": lambda table, window: low_rank(table, window, 1),
    "rank 2": lambda table, window: low_rank(table, window, 2),
    "iRPE buckets": buckets,
    "distance": distance,
    "slope": slope,
}


def fit_r2(table: Tensor, fitted: Tensor) -> Tensor:
    """R2 per head ``(h,)`` over all offsets, without each head's mean, which softmax ignores.

    A head without any variance is fitted by everything: 1.
    """
    left = table - fitted
    left, spread = (t - t.mean(0) for t in (left, table))
    total = spread.square().sum(0)
    return torch.where(total > 0, 1 - left.square().sum(0) / total, 1.0)


def _grid(table: Tensor, window: Size) -> Tensor:
    """``(P, h) -> (h, 2 Wh - 1, 2 Ww - 1)``."""
    return table.t().unflatten(1, (2 * window[0] - 1, 2 * window[1] - 1))


def _rows(grid: Tensor) -> Tensor:
    return grid.flatten(1).t()


def _grouped(table: Tensor, key: Tensor) -> Tensor:
    """Replace every row by the mean of the rows of the same key ``(P,)``."""
    _, group, size = key.unique(return_inverse=True, return_counts=True)
    sums = table.new_zeros(len(size), table.shape[1]).index_add_(0, group, table)
    return (sums / size[:, None].to(table.dtype))[group]
