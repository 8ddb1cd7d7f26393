"""Permutations between layouts: channels of patch merging, tokens and maps, index buffers.

Every function here is a pure permutation or reshape, so a round trip returns the same bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from relpos_mm.transfer.errors import TransferError

# Merging concatenates the four neighbours in the order (row, col) = (0,0), (1,0), (0,1), (1,1);
# unfolding lists them row-major. The permutation between both is its own inverse.
_NEIGHBOURS = (0, 2, 1, 3)


def merge_to_unfold(value: Tensor) -> Tensor:
    """Reorder the last axis (4C): neighbour blocks (group, channel) -> (channel, row, col).

    Serves ``downsample.reduction.weight`` (2C, 4C) and the 4C-wide ``downsample.norm`` weight and
    bias.
    """
    blocks = value.unflatten(-1, (4, value.shape[-1] // 4))[..., _NEIGHBOURS, :]
    return blocks.transpose(-1, -2).flatten(-2)


def merge_from_unfold(value: Tensor) -> Tensor:
    """Inverse of :func:`merge_to_unfold`: last axis (channel, row, col) -> (group, channel)."""
    blocks = value.unflatten(-1, (value.shape[-1] // 4, 4)).transpose(-1, -2)
    return blocks[..., _NEIGHBOURS, :].flatten(-2)


def absolute_to_tokens(value: Tensor) -> Tensor:
    """Absolute embedding (1, C, H, W) -> (1, H*W, C), row-major; a flat one passes unchanged."""
    return value.flatten(2).transpose(1, 2).contiguous() if value.ndim == 4 else value


def absolute_to_map(value: Tensor, grid: tuple[int, int] | None, prefix_tokens: int = 0) -> Tensor:
    """Absolute embedding (1, prefix + H*W, C) -> (1, C, H, W); a 4-D one passes unchanged.

    Neither the grid nor the number of leading rows of class or register tokens is ever guessed:
    without a grid the embedding stays flat, less its prefix rows.

    Raises:
        TransferError: the number of rows is not ``prefix_tokens + H*W``.
    """
    if value.ndim == 4:
        return value
    if grid is None:
        return value[:, prefix_tokens:]
    rows, (height, width) = value.shape[1], grid
    if rows != prefix_tokens + height * width:
        raise TransferError(
            f"absolute_pos_embed has {rows} rows, but a grid of {height}x{width} with "
            f"{prefix_tokens} prefix tokens needs {prefix_tokens + height * width}. Give the grid "
            "it was trained on (--grid H W) and the number of class or register rows before it "
            "(--prefix-tokens N)."
        )
    tokens = value[:, prefix_tokens:]
    return tokens.transpose(1, 2).unflatten(2, (height, width)).contiguous()


def square_index(table: Tensor) -> Tensor | None:
    """Index buffer (M*M, M*M) int64 of a bias table ((2M-1)^2, heads) of a square window.

    ``index[q, k] = (dy + M - 1) * (2M - 1) + dx + M - 1`` with offsets query - key. Returns None
    where the number of rows belongs to no square window.
    """
    side = round(table.shape[0] ** 0.5)
    if side * side != table.shape[0] or side % 2 == 0:
        return None
    window = (side + 1) // 2
    coords = torch.cartesian_prod(torch.arange(window), torch.arange(window)).reshape(-1, 2)
    offsets = coords[:, None] - coords[None] + window - 1
    return offsets[..., 0] * side + offsets[..., 1]
