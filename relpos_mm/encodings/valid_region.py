"""The real content of padded maps."""

from __future__ import annotations

import torch
from torch import Tensor

from .grid import Grid


def zero_padding(x: Tensor, grid: Grid) -> Tensor:
    """Zero the tokens of a map ``(B, H, W, C)`` outside ``grid.valid``, as a map's border is.

    The very same tensor without a valid region.

    Raises:
        ValueError: As many regions as images are needed.
    """
    if grid.valid is None:
        return x
    if len(grid.valid) not in (1, len(x)):
        raise ValueError(f"Grid.valid has {len(grid.valid)} regions for {len(x)} images")
    limits = torch.tensor(grid.valid, device=x.device)[:, :, None, None]  # (B, 2, 1, 1)
    rows = torch.arange(grid.q[0], device=x.device)[:, None] < limits[:, 0]
    columns = torch.arange(grid.q[1], device=x.device)[None, :] < limits[:, 1]
    return x.masked_fill(~(rows & columns)[..., None], 0)
