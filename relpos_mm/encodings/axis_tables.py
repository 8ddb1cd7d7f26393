"""Tables with one vector per offset along an axis: stretching, extending and loading them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .base import PositionEncoding, Resized, other_shapes
from .grid import Size
from .precision import widen
from .resize import ResizeMode


def resize_linear(table: Tensor, rows: int) -> Tensor:
    """Stretch a table ``(L, d)`` to ``(rows, d)``, half-pixel centres, in float32 or better."""
    if len(table) == rows:
        return table
    lines = widen(table).t().unsqueeze(0)  # (L, d) -> (1, d, L)
    return F.interpolate(lines, size=rows, mode="linear")[0].t().to(table.dtype)


def extend_axis(table: Tensor, rows: int) -> Tensor:
    """Keep the row of every offset, counted from the middle, and repeat the edge beyond."""
    offsets = torch.arange(rows, device=table.device) - rows // 2
    return table[(offsets + len(table) // 2).clamp(0, len(table) - 1)]


class AxisTableEncoding(PositionEncoding):
    """Base of encodings whose parameters are all tables ``(2 W - 1, d)``, one per axis."""

    def transfer(
        self,
        state: dict[str, Tensor],
        prefix: str,
        *,
        mode: ResizeMode = "scale",
        source: dict[str, Size] | None = None,
    ) -> list[Resized]:
        """Resize each table along its axis: ``scale`` linearly, ``extend`` repeats the edge.

        Raises:
            ValueError: Another width, an even number of rows, or an unknown mode.
        """
        records = []
        for name, table, own in other_shapes(self, state, prefix):
            key = prefix + name
            if table.ndim != 2 or table.shape[1] != own.shape[1] or len(table) % 2 == 0:
                raise ValueError(
                    f"{key}: {tuple(table.shape)} in the checkpoint does not fit "
                    f"{tuple(own.shape)}: the rows must be an odd number, the columns follow from "
                    "embed_dims and num_heads"
                )
            if mode == "scale":
                state[key], how = resize_linear(table, len(own)), "linear"
            elif mode == "extend":
                state[key], how = extend_axis(table, len(own)), "offsets kept, edge repeated"
            else:
                raise ValueError(f"mode must be 'scale' or 'extend', got {mode!r}")
            records.append(Resized(key, tuple(table.shape), tuple(own.shape), how))
        return records
