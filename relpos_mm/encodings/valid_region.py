"""The real content of padded maps."""

from __future__ import annotations

import torch
from torch import Tensor

from .grid import Grid
from .made_once import constant


def content(grid: Grid, batch: int, device: torch.device | str | None = None) -> Tensor | None:
    """Which tokens are content: ``(1|B, H, W)`` bool, None without a valid region.

    Raises:
        ValueError: As many regions as images are needed.
    """
    if grid.valid is None:
        return None
    if len(grid.valid) not in (1, batch):
        raise ValueError(f"Grid.valid has {len(grid.valid)} regions for {batch} images")
    limits = constant(tuple(grid.valid), torch.int64, device or torch.get_default_device())
    limits = limits[:, :, None, None]  # (B, 2, 1, 1)
    rows = torch.arange(grid.q[0], device=device)[:, None] < limits[:, 0]
    columns = torch.arange(grid.q[1], device=device)[None, :] < limits[:, 1]
    return rows & columns


def zero_padding(x: Tensor, grid: Grid) -> Tensor:
    """Zero the tokens of a map ``(B, H, W, C)`` outside ``grid.valid``, as a map's border is.

    The very same tensor without a valid region.

    Raises:
        ValueError: As many regions as images are needed.
    """
    inside = content(grid, len(x), x.device)
    return x if inside is None else x.masked_fill(~inside[..., None], 0)
