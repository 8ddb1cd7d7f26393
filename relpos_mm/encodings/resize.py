"""Spatial resizing of position parameters, used at run time and by every checkpoint loader.

All resizing is bicubic with half-pixel centres (``align_corners=False``) and without antialias,
as the released Swin loaders do it, and runs in float32 or better.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from .buckets import table_rows
from .grid import Size

ResizeMode = Literal["scale", "extend"]


def resize_bicubic(grid: Tensor, size: Size, antialias: bool = False) -> Tensor:
    """Resize ``(B, C, H, W)`` to ``size``; the very same tensor when the size is right already.

    ``antialias`` takes torch's other cubic kernel (a = -0.5 instead of -0.75), which gives other
    numbers even when it enlarges.
    """
    if tuple(grid.shape[-2:]) == tuple(size):
        return grid
    # bfloat16 has no bicubic kernel everywhere, and 8 bits of mantissa would move the grid.
    wide = grid if grid.dtype == torch.float64 else grid.float()
    return F.interpolate(wide, size=tuple(size), mode="bicubic", antialias=antialias).to(grid.dtype)


def resize_absolute(absolute_pos_embed: Tensor, size: Size) -> Tensor:
    """Resize an absolute embedding ``(1, C, H, W)`` to the grid ``size``."""
    return resize_bicubic(absolute_pos_embed, size)


def resize_bias_table(
    table: Tensor, src_window: Size, dst_window: Size, mode: ResizeMode = "scale"
) -> Tensor:
    """Carry a relative position bias table to another window.

    Args:
        table: ``(rows, heads)`` with ``rows = (2 Wh - 1)(2 Ww - 1)`` of ``src_window``.
        src_window: Window the table was trained with ``(Wh, Ww)``.
        dst_window: Window wanted.
        mode: ``scale`` stretches the offsets with the window (right when the picture is enlarged
            with the window); ``extend`` keeps the value of every offset that both windows have and
            repeats the edge beyond (right when objects keep their size in tokens).

    Returns:
        Table for ``dst_window``; the very same tensor when the windows are equal.

    Raises:
        ValueError: The rows do not belong to ``src_window``, or an unknown mode.
    """
    if table.shape[0] != table_rows(src_window):
        raise ValueError(
            f"a table of window {src_window[0]} x {src_window[1]} has {table_rows(src_window)} "
            f"rows, this one has {table.shape[0]}; name the window it was trained with"
        )
    if tuple(src_window) == tuple(dst_window):
        return table
    source = (2 * src_window[0] - 1, 2 * src_window[1] - 1)
    target = (2 * dst_window[0] - 1, 2 * dst_window[1] - 1)
    grid = table.t().reshape(1, -1, *source)  # (rows, heads) -> (1, heads, 2 Wh - 1, 2 Ww - 1)
    if mode == "scale":
        resized = resize_bicubic(grid, target)
    elif mode == "extend":
        rows = _extended_axis(src_window[0], dst_window[0], table.device)
        columns = _extended_axis(src_window[1], dst_window[1], table.device)
        resized = grid[:, :, rows[:, None], columns[None, :]]
    else:
        raise ValueError(f"mode must be 'scale' or 'extend', got {mode!r}")
    return resized.flatten(2)[0].t().contiguous()  # (rows', heads)


def _extended_axis(source: int, target: int, device: torch.device) -> Tensor:
    """Source index of each target offset, the outermost one repeated beyond the source window."""
    offsets = torch.arange(-(target - 1), target, device=device)
    return offsets.clamp(-(source - 1), source - 1) + source - 1
