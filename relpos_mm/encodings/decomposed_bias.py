"""Decomposed relative position: one learned vector per row offset and one per column offset."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from relpos_mm.registry import POSITIONS

from .arguments import head_width
from .axis_tables import AxisTableEncoding, resize_linear
from .base import Padding
from .contextual import axial_term, project
from .grid import Grid, Size, as_size
from .made_once import made_once


@POSITIONS.register_module()
class DecomposedBias(AxisTableEncoding):
    """``q k^T / sqrt(d) + q . R_h[dy] + q . R_w[dx]``, tables shared by all heads.

    Source: MViTv2, section 4.1, equation 4; ViTDet's released code. Scale rule: q is NOT scaled in
    the position terms, so the same table weighs sqrt(d) more than in Shaw's form. Sign rule: rows
    are indexed by query minus key, rising (BoTNet's public form is the reverse: flip its tables).
    Names and shapes are the public ones: ``rel_pos_h (2 Wh - 1, d)`` and ``rel_pos_w (2 Ww - 1,
    d)``.

    On a grid that the tables were not made for, ``interpolate`` stretches them linearly at every
    call, as the released detection code does; the bias then depends on the padded size of the batch
    and is no function of the offset any more. ``centre`` keeps every offset's row, counted from the
    middle of the table, and repeats the edge; on the tables' own grid both are equal.

    Pooled queries or keys (MViT) are indexed as published: positions in units of the finer grid,
    cut to whole numbers. The released ViTDet recipe decays the tables; here position parameters are
    not decayed.

    Args:
        embed_dims: Channels C; d = C / h.
        num_heads: Attention heads h.
        window_size: Grid ``(Wh, Ww)`` that the tables are made for; the larger of the query and key
            grid where they differ.
        mode: ``interpolate`` or ``centre``.
        zero_init: Start from zero, as ViTDet's fine-tuning does, else from a truncated normal of
            0.02.
        factored: Hand the term over as ``a @ b^T`` with Hk + Wk extra channels, so that fused
            kernels need no bias tensor.

    Raises:
        ValueError: An unknown ``mode``, or ``num_heads`` does not divide ``embed_dims``.
    """

    slug: ClassVar[str] = "decomposed"
    free: ClassVar[frozenset[str]] = frozenset({"zero_init", "factored"})

    def __init__(
        self,
        *,
        embed_dims: int,
        num_heads: int,
        window_size: int | Size,
        mode: Literal["interpolate", "centre"] = "interpolate",
        zero_init: bool = True,
        factored: bool = True,
    ) -> None:
        super().__init__()
        if mode not in ("interpolate", "centre"):
            raise ValueError(
                f"DecomposedBias: mode must be 'interpolate' or 'centre', got {mode!r}"
            )
        self.mode = mode
        self.factored = factored
        self.padding: Padding = "unsafe" if mode == "interpolate" else "safe"
        head_dims = head_width("DecomposedBias", embed_dims, num_heads)
        height, width = as_size("DecomposedBias: window_size", window_size)
        self.rel_pos_h = nn.Parameter(torch.zeros(2 * height - 1, head_dims))
        self.rel_pos_w = nn.Parameter(torch.zeros(2 * width - 1, head_dims))
        if not zero_init:
            nn.init.trunc_normal_(self.rel_pos_h, std=0.02)
            nn.init.trunc_normal_(self.rel_pos_w, std=0.02)

    def bias(
        self, q: Tensor, k: Tensor, grid: Grid, scale: float
    ) -> Tensor | tuple[Tensor, Tensor]:
        rows, row_index = self._axis(self.rel_pos_h, grid.q[0], grid.k[0])
        columns, column_index = self._axis(self.rel_pos_w, grid.q[1], grid.k[1])
        products = project(q, rows), project(q, columns)
        return axial_term(products, (row_index, column_index), grid, self.factored)

    def _axis(self, table: Tensor, queries: int, keys: int) -> tuple[Tensor, Tensor]:
        """Table for an axis and the row of every query/key pair ``(queries, keys)``."""
        if self.mode == "interpolate":
            table = resize_linear(table, 2 * max(queries, keys) - 1)
        return table, finer_index(queries, keys, len(table), table.device)

    def extra_repr(self) -> str:
        window = ((len(self.rel_pos_h) + 1) // 2, (len(self.rel_pos_w) + 1) // 2)
        return f"window_size={window}, mode={self.mode!r}"


@made_once(maxsize=128)
def finer_index(queries: int, keys: int, length: int, device: torch.device | str = "cpu") -> Tensor:
    """Row of every pair on one axis ``(queries, keys)`` in a table of ``length`` rows.

    The published rule for a table of ``2 max(queries, keys) - 1`` rows; another table is read from
    its middle, and its edge is repeated.
    """
    to_query, to_key = max(keys / queries, 1.0), max(queries / keys, 1.0)
    query = torch.arange(queries, device=device)[:, None] * to_query
    key = torch.arange(keys, device=device)[None, :] * to_key
    row = (query - key + (keys - 1) * to_key).long()
    return (row + length // 2 - (max(queries, keys) - 1)).clamp(0, length - 1)
