"""Row and column vectors on halves of the channels (stand-alone self-attention)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relpos_mm.registry import POSITIONS

from .arguments import head_width
from .axis_tables import AxisTableEncoding
from .contextual import axial_term, project
from .grid import Grid, Size, as_size
from .offset_vectors import clipped_axis


@POSITIONS.register_module()
class SasaRelative(AxisTableEncoding):
    """``e = q . (k + [r_row(dy) ; r_column(dx)]) / sqrt(d)``: half of the channels per axis.

    Source: "Stand-Alone Self-Attention in Vision Models", section 3.1, equation 3, which sums over
    a k x k neighbourhood; here the window or map is the neighbourhood. Scale rule: inside, as the
    term belongs to the key (the paper writes no 1/sqrt(d); pass ``scale=1`` for its form). Sign
    rule: rows rise with query minus key; the public port counts key minus query: flip its tables.

    The port (leaderj1001) splits all C channels in halves before it makes groups, so half of its
    heads see rows only and the others columns only: ``split="channels"``. It also takes a softmax
    per channel without summing over the head, which is not attention and not followed, and starts
    its vectors from N(0, 1); here they start from a truncated normal of 0.02. They are not decayed.

    Offsets beyond the tables read the edge. Parameters: ``rel_h (2 Wh - 1, w)`` and ``rel_w
    (2 Ww - 1, w)`` with w = d / 2 for shared heads, else C / 2.

    Args:
        embed_dims: Channels C; d = C / h.
        num_heads: Attention heads h.
        window_size: Window ``(Wh, Ww)`` whose offsets have rows of their own.
        split: ``head`` halves the channels of each head, ``channels`` all C channels at once.
        shared_heads: One set of vectors for all heads. Default: True for ``head``; ``channels`` has
            no such form.
        factored: Hand the term over as ``a @ b^T``, see ``DecomposedBias``.

    Raises:
        ValueError: An odd width to halve, an unknown ``split``, or shared ``channels``.
    """

    slug: ClassVar[str] = "sasa"
    free: ClassVar[frozenset[str]] = frozenset({"factored"})

    def __init__(
        self,
        *,
        embed_dims: int,
        num_heads: int,
        window_size: int | Size,
        split: Literal["head", "channels"] = "head",
        shared_heads: bool | None = None,
        factored: bool = True,
    ) -> None:
        super().__init__()
        if split not in ("head", "channels"):
            raise ValueError(f"SasaRelative: split must be 'head' or 'channels', got {split!r}")
        if split == "channels" and shared_heads:
            raise ValueError("SasaRelative: split='channels' gives every head its own vectors")
        self.num_heads, self.split, self.factored = num_heads, split, factored
        self.shared_heads = split == "head" if shared_heads is None else shared_heads
        head_dims = head_width("SasaRelative", embed_dims, num_heads)
        whole = head_dims if split == "head" else embed_dims
        if whole % 2:
            raise ValueError(f"SasaRelative: an odd number of channels ({whole}) has no halves")
        width = head_dims // 2 if self.shared_heads else embed_dims // 2
        rows, columns = as_size("SasaRelative: window_size", window_size)
        self.rel_h = nn.Parameter(torch.empty(2 * rows - 1, width))
        self.rel_w = nn.Parameter(torch.empty(2 * columns - 1, width))
        nn.init.trunc_normal_(self.rel_h, std=0.02)
        nn.init.trunc_normal_(self.rel_w, std=0.02)

    @classmethod
    def options_of(cls, cfg: Mapping[str, Any]) -> dict[str, Any]:
        options = super().options_of(cfg)
        if options["shared_heads"] is None:
            options["shared_heads"] = options["split"] == "head"
        return options

    def bias(
        self, q: Tensor, k: Tensor, grid: Grid, scale: float
    ) -> Tensor | tuple[Tensor, Tensor]:
        products, indices = [], []
        for axis, table in enumerate((self.rel_h, self.rel_w)):
            reach = len(table) // 2
            products.append(project(q * scale, self._vectors(table, axis)))
            indices.append(clipped_axis(grid.q[axis], grid.k[axis], (reach, reach), q.device))
        return axial_term(products, indices, grid, self.factored)

    def _vectors(self, table: Tensor, axis: int) -> Tensor:
        """Vectors ``(rows, d)`` or ``(h, rows, d)``, zero on the other axis' half."""
        heads = 1 if self.shared_heads or self.split == "channels" else self.num_heads
        halves = table.unflatten(1, (heads, -1))  # (rows, heads, half)
        width = halves.shape[2]
        whole = F.pad(halves, (0, width) if axis == 0 else (width, 0)).flatten(1)
        if self.shared_heads:
            return whole
        return whole.unflatten(1, (self.num_heads, -1)).transpose(0, 1)

    def extra_repr(self) -> str:
        window = ((len(self.rel_h) + 1) // 2, (len(self.rel_w) + 1) // 2)
        return f"window_size={window}, split={self.split!r}, shared_heads={self.shared_heads}"
