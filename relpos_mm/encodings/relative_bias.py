"""Relative position bias: one learned scalar per offset and head (the Swin table)."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from relpos_mm.registry import POSITIONS

from .arguments import require_counts
from .base import PositionEncoding, Resized
from .buckets import product_index, require_covered, table_rows
from .grid import Grid, Size, as_size
from .resize import ResizeMode, resize_bias_table


@POSITIONS.register_module()
class RelativeBias(PositionEncoding):
    """``softmax(q k^T / sqrt(d) + B)`` with ``B[q, k] = table[offset(q, k), head]``.

    Source: Swin Transformer, section 3.2, equation 4. Scale rule: B is added after scaling. Sign
    rule: offsets are query minus key, rows first. The table keeps the public shape
    ``relative_position_bias_table ((2 Wh - 1)(2 Ww - 1), heads)`` and starts from a truncated
    normal of 0.02. A grid smaller than the window reads the central offsets.

    ``content=False`` is the row "rel. pos. w/o app." of Table 4: the logits of a query on the grid
    are B alone. The content term is ``scale q k^T`` whatever the host's scale is, so ``rotate``
    replaces q by zeros, which keep a (zero) gradient; it stands last in a list with other rotating
    encodings. Biases of other encodings in the list stay, they read the raw q and k, and prefix
    tokens keep their own content logits as queries.

    Args:
        num_heads: Attention heads h.
        window_size: Largest grid ``(Wh, Ww)`` that one attention call may have.
        content: Keep the content term ``q k^T``.
    """

    slug: ClassVar[str] = "rel"

    def __init__(self, *, num_heads: int, window_size: int | Size, content: bool = True) -> None:
        super().__init__()
        require_counts("RelativeBias", num_heads=num_heads)
        self.content = content
        self.window_size = as_size("RelativeBias: window_size", window_size)
        self.relative_position_bias_table = nn.Parameter(
            torch.empty(table_rows(self.window_size), num_heads)
        )
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    @classmethod
    def slug_of(cls, cfg: Mapping[str, Any]) -> str:
        return cls.slug if cfg.get("content", True) else "biasonly"

    def bias(self, q: Tensor, k: Tensor, grid: Grid, scale: float) -> Tensor:
        table = self.relative_position_bias_table
        index = product_index(grid.q, grid.k, self.window_size, table.device)
        # (Nq, Nk) rows of (heads) -> (1, heads, Nq, Nk)
        gathered = table.index_select(0, index.flatten()).view(*index.shape, -1)
        return gathered.permute(2, 0, 1).unsqueeze(0)

    def offset_table(self, grid: Grid, device: torch.device) -> Tensor | None:
        if grid.q != grid.k:
            return None
        require_covered(grid.q, grid.k, self.window_size)
        rows, columns = (
            slice(most - side, most + side - 1)
            for most, side in zip(self.window_size, grid.q, strict=True)
        )
        table = self.relative_position_bias_table.unflatten(0, (2 * self.window_size[0] - 1, -1))
        return table[rows, columns].permute(2, 0, 1)

    def rotate(self, q: Tensor, k: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
        if self.content:
            return q, k
        # Not q * 0, which is NaN for an infinite q.
        return q.masked_fill(torch.ones((), dtype=torch.bool, device=q.device), 0.0), k

    def transfer(
        self,
        state: dict[str, Tensor],
        prefix: str,
        *,
        mode: ResizeMode = "scale",
        source: dict[str, Size] | None = None,
    ) -> list[Resized]:
        """Resize to this window, ``scale`` by bicubic interpolation or ``extend``.

        Without ``source["window_size"]``, as in a bare ``load_state_dict``, the checkpoint's window
        is taken to be this one where the rows agree (4x7 and 7x4 do), else to be square.
        """
        key = prefix + "relative_position_bias_table"
        table = state.get(key)
        own = tuple(self.relative_position_bias_table.shape)
        if table is None:
            return []
        if table.ndim != 2 or table.shape[1] != own[1]:
            raise ValueError(
                f"{key}: {tuple(table.shape)} in the checkpoint does not fit {own}: the second "
                "number is the heads of the stage, set num_heads to the checkpoint's"
            )
        window = (source or {}).get("window_size")
        if window is None:
            if table.shape[0] == own[0]:
                return []
            window = self._square_window(key, table.shape[0])
        if tuple(window) == self.window_size:
            return []
        state[key] = resize_bias_table(table, window, self.window_size, mode)
        how = f"window {window[0]}x{window[1]} -> {self.window_size[0]}x{self.window_size[1]}, "
        how += "bicubic" if mode == "scale" else "offsets kept, edge repeated"
        return [Resized(key, tuple(table.shape), own, how)]

    @staticmethod
    def _square_window(key: str, rows: int) -> Size:
        side = isqrt(rows)
        if side * side != rows or side % 2 == 0:
            raise ValueError(
                f"{key}: {rows} rows are not those of a square window; name the window that the "
                "checkpoint was trained with (tools/transfer.py --window H W)"
            )
        return (side + 1) // 2, (side + 1) // 2

    def extra_repr(self) -> str:
        heads = self.relative_position_bias_table.shape[1]
        return f"num_heads={heads}, window_size={self.window_size}"
