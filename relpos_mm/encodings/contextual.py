"""Content-dependent position terms, without a vector per query/key pair anywhere.

Legend: ``K`` rows of a table of vectors, ``N`` tokens that are multiplied with them, ``M`` tokens
on the other side.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .grid import Grid, Size
from .made_once import made_once
from .precision import widen


def project(x: Tensor, table: Tensor) -> Tensor:
    """Every token times every vector: ``(B, h, N, d)`` and ``(K, d)`` or ``(h, K, d)`` -> K last.

    float16 is multiplied in float32: the product of large activations leaves its range.
    """
    if x.dtype == torch.float16:
        with torch.autocast(x.device.type, enabled=False):
            return x.float() @ table.float().transpose(-2, -1)
    return x @ table.to(x.dtype).transpose(-2, -1)


def pick(projected: Tensor, index: Tensor) -> Tensor:
    """The row of each pair: ``(B, h, N, K)`` and an index ``(N, M)`` -> ``(B, h, N, M)``."""
    return projected.gather(3, index.expand(*projected.shape[:2], -1, -1))


def bucket_mass(attn: Tensor, index: Tensor, num_rows: int) -> Tensor:
    """Attention per table row: ``(B, h, N, M)`` and an index ``(N, M)`` -> ``(B, h, N, K)``."""
    wide = widen(attn)  # many small numbers are summed up
    mass = wide.new_zeros(*attn.shape[:3], num_rows)
    mass = mass.scatter_add(3, index.expand(*attn.shape[:2], -1, -1), wide)
    return mass.to(attn.dtype)


def axial_term(
    products: Sequence[Tensor],
    indices: Sequence[Tensor],
    grid: Grid,
    factored: bool,
) -> Tensor | tuple[Tensor, Tensor]:
    """A term that is the sum of one per row offset and one per column offset.

    Args:
        products: Products of the queries with the vectors of row offsets, ``(B, h, Nq, Ky)``, and
            of column offsets, ``(B, h, Nq, Kx)``.
        indices: Vector of each pair of a query row and a key row, ``(Hq, Hk)``, and the same for
            columns, ``(Wq, Wk)``.
        grid: Grid of the call.
        factored: Return ``(a, b)`` with ``a @ b^T`` equal to the term: ``a (B, h, Nq, Hk + Wk)``
            holds the products and ``b`` marks the row and column of each key.

    Returns:
        ``(a, b)`` or the dense term ``(B, h, Nq, Nk)``.
    """
    (height, width), (rows, columns) = grid.q, indices
    by_row = pick(products[0], rows.repeat_interleave(width, 0))  # (B, h, Nq, Hk)
    by_column = pick(products[1], columns.repeat(height, 1))  # (B, h, Nq, Wk)
    if not factored:
        return (by_row.unsqueeze(-1) + by_column.unsqueeze(-2)).flatten(3)
    a = torch.cat((by_row, by_column), dim=-1)
    return a, key_axes(grid.k, a.device).to(a.dtype)


@made_once(maxsize=64)
def key_axes(size: Size, device: torch.device | str = "cpu") -> Tensor:
    """One-hot row and column of every key, ``(1, 1, H * W, H + W)`` float32."""
    height, width = size
    rows = torch.eye(height, device=device).repeat_interleave(width, 0)
    columns = torch.eye(width, device=device).repeat(height, 1)
    return torch.cat((rows, columns), dim=1)[None, None]
