"""One learned vector per clipped offset, the table behind Shaw's and Huang's methods."""

from __future__ import annotations

from math import isqrt
from typing import Literal

import torch
from mmengine.utils import to_2tuple
from torch import Tensor, nn

from .base import Resized, other_shapes
from .buckets import axis_offsets
from .contextual import axial_term, bucket_mass, project
from .grid import Grid, Size
from .lookup import Lookup, ValueLookup
from .made_once import made_once

Mapping = Literal["product", "cross"]
Reach = tuple[int, int]  # rows before and behind the offset 0


class OffsetVectors(nn.Module):
    """Vectors ``r[c(dy), c(dx)]`` (product) or ``r_y[c(dy)] + r_x[c(dx)]`` (cross).

    ``c`` clips an offset, query minus key, to ``[-K, K]``, or to ``[-K, K - 1]`` when asymmetric.
    Rows rise with the offset, rows of the grid first: ``(dy + Ky) (2 Kx + 1) + dx + Kx``. Initial
    values are a truncated normal of 0.02.

    Args:
        head_dims: Width d of a vector.
        heads: None shares the vectors among the heads, a number gives each head its own.
        clip: K of both axes or ``(Ky, Kx)``.
        mapping: ``product`` has one ``table (K, d)``, ``cross`` two, ``rows`` and ``columns``.
            Per head they are ``(h, K, d)``.
        asymmetric: Leave out the row of offset K, as SpeechT5 does.

    Raises:
        ValueError: A ``clip`` that is no whole number, a negative one, or an unknown ``mapping``.
    """

    table: Tensor
    rows: Tensor
    columns: Tensor

    def __init__(
        self,
        head_dims: int,
        heads: int | None,
        clip: int | Size,
        mapping: Mapping,
        asymmetric: bool = False,
    ) -> None:
        super().__init__()
        clips = to_2tuple(clip)
        if len(clips) != 2 or not all(isinstance(k, int) and k >= 0 for k in clips):
            raise ValueError(f"clip must be a whole number from 0 on, or (Ky, Kx), got {clip!r}")
        if mapping not in ("product", "cross"):
            raise ValueError(f"mapping must be 'product' or 'cross', got {mapping!r}")
        self.mapping = mapping
        self.reach: tuple[Reach, Reach] = tuple(  # type: ignore[assignment]
            (k, max(k - 1, 0) if asymmetric else k) for k in clips
        )
        height, width = (low + high + 1 for low, high in self.reach)
        sizes = {"table": height * width} if mapping == "product" else {"rows": height}
        if mapping == "cross":
            sizes["columns"] = width
        for name, size in sizes.items():
            shape = (size, head_dims) if heads is None else (heads, size, head_dims)
            parameter = nn.Parameter(torch.empty(shape))
            nn.init.trunc_normal_(parameter, std=0.02)
            self.register_parameter(name, parameter)

    def lookup(self, tokens: Tensor, grid: Grid, *, by_key: bool = False) -> Lookup:
        """Unexpanded ``q_i . r(i, j)``, or ``k_j . r(i, j)`` if ``by_key`` (product only)."""
        index = clipped_index(grid.q, grid.k, self.reach, tokens.device)
        return Lookup(project(tokens, self.table), index.t() if by_key else index, by_key)

    def query_logits(
        self, q: Tensor, grid: Grid, factored: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """``q_i . r(i, j)`` of ``q (B, h, Nq, d)``: ``(B, h, Nq, Nk)``, or its factors if cross."""
        if self.mapping == "product":
            return self.lookup(q, grid).dense()
        products = project(q, self.rows), project(q, self.columns)
        return axial_term(products, self._axes(grid, q), grid, factored)

    def key_logits(self, k: Tensor, grid: Grid) -> Tensor:
        """``k_j . r(i, j)`` of ``k (B, h, Nk, d)``: ``(B, h, Nq, Nk)``."""
        if self.mapping == "product":
            return self.lookup(k, grid, by_key=True).dense()
        products = project(k, self.rows), project(k, self.columns)
        indices = [index.t() for index in self._axes(grid, k)]
        # Queries and keys change places: the grid of the call, seen from the keys.
        term = axial_term(products, indices, Grid(grid.k, grid.q), False)
        return term.transpose(2, 3)  # type: ignore[union-attr]

    def value_lookup(self, grid: Grid) -> ValueLookup:
        """Unexpanded form of :meth:`value_sum` (product only)."""
        index = clipped_index(grid.q, grid.k, self.reach, self.table.device)
        return ValueLookup(self.table.view(-1, *self.table.shape[-2:]), index)

    def value_sum(self, attn: Tensor, grid: Grid) -> Tensor:
        """``sum_j attn_ij r(i, j)`` of ``attn (B, h, Nq, Nk)``: ``(B, h, Nq, d)``."""
        if self.mapping == "product":
            return self.value_lookup(grid).read(attn)
        by_key = attn.unflatten(3, grid.k)
        row_index, column_index = self._axes(grid, attn)
        row_mass = bucket_mass(
            by_key.sum(4), row_index.repeat_interleave(grid.q[1], 0), self.rows.shape[-2]
        )
        column_mass = bucket_mass(
            by_key.sum(3), column_index.repeat(grid.q[0], 1), self.columns.shape[-2]
        )
        return row_mass @ self.rows.to(attn.dtype) + column_mass @ self.columns.to(attn.dtype)

    def resize(
        self, state: dict[str, Tensor], prefix: str, source: dict[str, Size] | None = None
    ) -> list[Resized]:
        """Bring tables of another ``clip`` to this one: every offset keeps its row, edges repeat.

        Raises:
            ValueError: Vectors of another width or number of heads, or a table whose clip cannot be
                told from its rows; ``source["clip"]`` names it.
        """
        records = []
        for name, table, own in other_shapes(self, state, prefix):
            key = prefix + name
            if table.shape[:-2] != own.shape[:-2] or table.shape[-1] != own.shape[-1]:
                raise ValueError(
                    f"{key}: {tuple(table.shape)} in the checkpoint does not fit "
                    f"{tuple(own.shape)}: heads or embed_dims / num_heads differ"
                )
            if name == "table":
                sizes = self._source_sizes(key, table.shape[-2], (source or {}).get("clip"))
                kept = [_kept(*axis, table.device) for axis in zip(sizes, self.reach, strict=True)]
                rows = (kept[0][:, None] * sizes[1] + kept[1]).flatten()
            else:
                rows = _kept(table.shape[-2], self.reach[name == "columns"], table.device)
            state[key] = table.index_select(-2, rows)
            how = "offsets kept, edge repeated"
            records.append(Resized(key, tuple(table.shape), tuple(own.shape), how))
        return records

    def _source_sizes(self, key: str, rows: int, clip: Size | None) -> Size:
        """Rows and columns of a product table in a checkpoint."""
        if clip is None:
            side = isqrt(rows)
            sizes = (side, side)
        else:
            height, width = (
                2 * k + 1 - (low > high) for k, (low, high) in zip(clip, self.reach, strict=True)
            )
            sizes = (height, width)
        if sizes[0] * sizes[1] != rows:
            raise ValueError(
                f"{key}: {rows} rows are not those of a table with "
                f"{'equal clips' if clip is None else f'clip {clip}'}; "
                "name the clip (Ky, Kx) of the checkpoint"
            )
        return sizes

    def _axes(self, grid: Grid, like: Tensor) -> tuple[Tensor, Tensor]:
        rows, columns = (
            clipped_axis(*sizes, like.device)
            for sizes in zip(grid.q, grid.k, self.reach, strict=True)
        )
        return rows, columns

    def extra_repr(self) -> str:
        return f"mapping={self.mapping!r}, reach={self.reach}"


def _kept(length: int, reach: Reach, device: torch.device) -> Tensor:
    """Row of each wanted offset in an axis of ``length`` rows, the edge repeated."""
    offsets = torch.arange(-reach[0], reach[1] + 1, device=device)
    return (offsets + length // 2).clamp(0, length - 1)


@made_once(maxsize=128)
def clipped_axis(
    queries: int, keys: int, reach: Reach, device: torch.device | str = "cpu"
) -> Tensor:
    """Row of every pair on one axis ``(queries, keys)`` among ``reach[0] + 1 + reach[1]`` rows."""
    return axis_offsets(queries, keys, device).clamp(-reach[0], reach[1]) + reach[0]


@made_once(maxsize=64)
def clipped_index(
    query_size: Size,
    key_size: Size,
    reach: tuple[Reach, Reach],
    device: torch.device | str = "cpu",
) -> Tensor:
    """Row of every pair ``(Nq, Nk)`` in a product table, rows of the grid first."""
    axes = zip(query_size, key_size, reach, strict=True)
    rows, columns = (clipped_axis(*axis, device) for axis in axes)
    width = reach[1][0] + 1 + reach[1][1]
    index = rows[:, None, :, None] * width + columns[None, :, None, :]
    # (Hq, Wq, Hk, Wk) -> (Nq, Nk)
    return index.reshape(query_size[0] * query_size[1], key_size[0] * key_size[1])
