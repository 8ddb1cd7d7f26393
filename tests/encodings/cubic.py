"""Bicubic resizing, one place at a time."""

from __future__ import annotations

import torch
from torch import Tensor


def cubic_vector(table: Tensor, row: int, column: int, size: tuple[int, int]) -> Tensor:
    """One place of ``table (C, H, W)`` resized to ``size``.

    Cubic convolution (a = -0.75) at the pixel centre, edges repeated.
    """
    out = torch.zeros(table.shape[0], dtype=table.dtype)
    for tap_y, weight_y in cubic_taps(row, size[0], table.shape[1]):
        for tap_x, weight_x in cubic_taps(column, size[1], table.shape[2]):
            out += weight_y * weight_x * table[:, tap_y, tap_x].detach()
    return out


def cubic_taps(place: int, size: int, source: int) -> list[tuple[int, float]]:
    centre = (place + 0.5) * source / size - 0.5
    first = int(centre // 1) - 1
    taps = []
    for tap in range(first, first + 4):
        t = abs(centre - tap)
        weight = 1.25 * t**3 - 2.25 * t**2 + 1 if t <= 1 else -0.75 * (t**3 - 5 * t**2 + 8 * t - 4)
        taps.append((min(max(tap, 0), source - 1), weight))
    return taps
