"""Disentangled attention: content meets position in both directions (DeBERTa), in 2-D."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relpos_mm.registry import POSITIONS

from .arguments import head_width
from .base import PositionEncoding, Resized, other_shapes
from .buckets import axis_offsets
from .contextual import project
from .grid import Grid, Size
from .lookup import Lookup
from .made_once import made_once
from .resize import ResizeMode


@POSITIONS.register_module()
class Disentangled(PositionEncoding):
    """``e = [q . k + q . Kr[b] + k . Qr[b]] / sqrt(d (1 + terms))``, ``Kr = r Wk``, ``Qr = r Wq``.

    ``b`` is a pair of log buckets, one per axis: exact up to ``bucket_size / 2``, logarithmic up to
    ``max_distance``. ``r(by, bx)`` is the LayerNorm of ``P_y[by] + P_x[bx]`` (cross) or of
    ``P[by, bx]`` (product).

    Source: DeBERTa, section 3.1, equations 2 to 4; log buckets, layer-normalised vectors and
    projections shared with the content are version 3's. No public 2-D code exists; on a grid of one
    row it is the 1-D method. Dropout on r is left out.

    Scale rule: all of it, q . k included (through ``rotate``), over sqrt(d (1 + number of terms)).
    Sign rule: offsets are query minus key, rows first, rising, in BOTH terms, as the public code
    has it; the paper's second term reads the bucket of key minus query (``p2c_offset="paper"``).

    Any grid works without a change to the checkpoint. Vectors and projections start from N(0,
    0.02). The original decays them all but the LayerNorm; here position parameters are not decayed.
    One instance has one table; the original shares it among layers: put the same instance into
    their lists.

    Args:
        embed_dims: Channels C; d = C / h.
        num_heads: Attention heads h.
        bucket_size: Buckets per direction and axis, k; tables have 2 k rows. 12 is exact in a 7 x 7
            window.
        max_distance: Offset where the last bucket starts.
        c2p: Content to position, ``q . Kr``.
        p2c: Position to content, ``k . Qr``.
        share_projections: Use the host's q and k projections (:meth:`bind`) instead of own ones.
        mapping: ``cross`` (2 k rows per axis) or ``product`` (4 k^2 rows).
        layer_norm: Normalise the vectors.
        p2c_offset: ``code`` or ``paper``, see the sign rule.

    Raises:
        ValueError: Contradicting arguments; at the first call, shared projections without a host.
    """

    slug: ClassVar[str] = "disentangled"
    free: ClassVar[frozenset[str]] = frozenset({"bucket_size"})

    def __init__(
        self,
        *,
        embed_dims: int,
        num_heads: int,
        bucket_size: int = 12,
        max_distance: int = 64,
        c2p: bool = True,
        p2c: bool = True,
        share_projections: bool = False,
        mapping: Literal["cross", "product"] = "cross",
        layer_norm: bool = True,
        p2c_offset: Literal["code", "paper"] = "code",
    ) -> None:
        super().__init__()
        _check(bucket_size, max_distance, c2p or p2c, mapping, p2c_offset)
        if p2c_offset != "code" and not p2c:
            raise ValueError(
                f"Disentangled: p2c_offset={p2c_offset!r} has no effect with p2c=False, drop it"
            )
        head_width("Disentangled", embed_dims, num_heads)
        self.num_heads, self.bucket_size, self.max_distance = num_heads, bucket_size, max_distance
        self.c2p, self.p2c, self.p2c_offset = c2p, p2c, p2c_offset
        self.share_projections, self.mapping = share_projections, mapping
        # A tuple, so that the host's projection does not become a part of this module.
        self._host: tuple[nn.Linear, ...] = ()
        rows = 2 * bucket_size
        if mapping == "cross":
            self.rel_embeddings_h = nn.Parameter(torch.empty(rows, embed_dims))
            self.rel_embeddings_w = nn.Parameter(torch.empty(rows, embed_dims))
        else:
            self.rel_embeddings = nn.Parameter(torch.empty(rows * rows, embed_dims))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)
        self.norm = nn.LayerNorm(embed_dims, eps=1e-7) if layer_norm else nn.Identity()
        for name in ("pos_key_proj",) * c2p + ("pos_query_proj",) * p2c:
            if not share_projections:
                linear = nn.Linear(embed_dims, embed_dims)
                nn.init.normal_(linear.weight, std=0.02)
                nn.init.zeros_(linear.bias)
                self.add_module(name, linear)

    def bind(self, *, proj: nn.Module | None = None) -> None:
        """Meet the host's projection, a linear layer C -> 3 C of q, k and v in this order."""
        if self.share_projections and isinstance(proj, nn.Linear):
            self._host = (proj,)

    def rotate(self, q: Tensor, k: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
        return q * self._share, k

    def lookups(self, q: Tensor, k: Tensor, grid: Grid, scale: float) -> list[Lookup]:
        scale = scale * self._share
        *used, index = self._buckets(grid.q, grid.k, q.device)
        terms = []
        if self.c2p:
            vectors = self._project(self._vectors(*used), "pos_key_proj", 1)
            terms.append(Lookup(project(q * scale, vectors), index))
        if self.p2c:
            by_key = index.t()
            if self.p2c_offset == "paper":
                *used, by_key = self._buckets(grid.k, grid.q, q.device)
            vectors = self._project(self._vectors(*used), "pos_query_proj", 0)
            terms.append(Lookup(project(k * scale, vectors), by_key, by_key=True))
        return terms

    def bias(self, q: Tensor, k: Tensor, grid: Grid, scale: float) -> Tensor:
        first, *others = (lookup.dense() for lookup in self.lookups(q, k, grid, scale))
        return sum(others, start=first)

    @property
    def _share(self) -> float:
        """What every term is multiplied with so that their sum keeps its variance."""
        return (1 + self.c2p + self.p2c) ** -0.5

    def _buckets(self, first: Size, second: Size, device: torch.device) -> tuple[Tensor, ...]:
        return used_buckets(first, second, self.bucket_size, self.max_distance, device)

    def _vectors(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Position vectors ``(P, C)`` of every pair of the row and column buckets in use."""
        if self.mapping == "cross":
            pairs = self.rel_embeddings_h[rows][:, None] + self.rel_embeddings_w[columns]
        else:
            pairs = self.rel_embeddings[rows[:, None] * 2 * self.bucket_size + columns]
        return self.norm(pairs.flatten(0, 1))

    def _project(self, vectors: Tensor, name: str, third: int) -> Tensor:
        """Vectors of each head ``(h, P, d)``, through the own or the host's projection."""
        if not self.share_projections:
            projected = self.get_submodule(name)(vectors)
        elif self._host:
            width = vectors.shape[1]
            rows = slice(third * width, (third + 1) * width)
            bias = self._host[0].bias
            weight = self._host[0].weight[rows].to(vectors.dtype)
            projected = F.linear(vectors, weight, None if bias is None else bias[rows])
        else:
            raise ValueError(
                "Disentangled: share_projections=True needs the host's linear layer C -> 3 C of "
                "q, k and v: call bind(proj=...) once, or use share_projections=False"
            )
        return projected.unflatten(1, (self.num_heads, -1)).transpose(0, 1)

    def transfer(
        self,
        state: dict[str, Tensor],
        prefix: str,
        *,
        mode: ResizeMode = "scale",
        source: dict[str, Size] | None = None,
    ) -> list[Resized]:
        """Keep the vector of every bucket, repeat the outermost: for another ``bucket_size``.

        Raises:
            ValueError: A table of another width, or no ``2 k`` rows (``4 k^2`` for ``product``).
        """
        records = []
        for name, table, own in other_shapes(self, state, prefix):
            if not name.startswith("rel_embeddings"):
                continue
            axes = 1 if self.mapping == "cross" else 2
            side = round(len(table) ** (1 / axes))
            whole = side % 2 == 0 and side**axes == len(table)
            if table.ndim != 2 or table.shape[1] != own.shape[1] or not whole:
                raise ValueError(
                    f"{prefix + name}: {tuple(table.shape)} in the checkpoint does not fit "
                    f"{tuple(own.shape)}; set embed_dims and mapping to the checkpoint's"
                )
            kept = torch.arange(2 * self.bucket_size, device=table.device) - self.bucket_size
            kept = (kept + side // 2).clamp(0, side - 1)
            if axes == 2:
                kept = (kept[:, None] * side + kept).flatten()
            state[prefix + name] = table.index_select(0, kept)
            how = f"bucket_size {side // 2} -> {self.bucket_size}, buckets kept, edge repeated"
            shapes = tuple(table.shape), tuple(own.shape)
            records.append(Resized(prefix + name, *shapes, how))
        return records

    def extra_repr(self) -> str:
        return (
            f"bucket_size={self.bucket_size}, max_distance={self.max_distance}, c2p={self.c2p}, "
            f"p2c={self.p2c}, share_projections={self.share_projections}, mapping={self.mapping!r}"
        )


def log_bucket(offsets: Tensor, bucket_size: int, max_distance: int) -> Tensor:
    """Bucket of every whole offset: itself up to ``bucket_size / 2``, logarithmic beyond."""
    middle = bucket_size // 2
    distance = offsets.abs().clamp(min=middle)  # near offsets keep their own value below
    # float32 step by step like the public code, or the edges of the buckets move.
    position = torch.log(distance / middle) / torch.log(torch.tensor((max_distance - 1) / middle))
    far = (torch.ceil(position * (middle - 1)) + middle).to(offsets.dtype)
    return torch.where(offsets.abs() <= middle, offsets, far * offsets.sign())


@made_once(maxsize=64)
def used_buckets(
    first: Size,
    second: Size,
    bucket_size: int,
    max_distance: int,
    device: torch.device | str = "cpu",
) -> tuple[Tensor, Tensor, Tensor]:
    """Table rows in use on each axis, ``(Uy,)`` and ``(Ux,)``, and the pair ``(N1, N2)`` of both.

    Offsets are first minus second; the pair of a row and a column bucket is ``row * Ux + column``.
    """
    axes = []
    for sizes in zip(first, second, strict=True):
        # On the CPU everywhere: another device's logarithm may round an edge the other way.
        bucket = log_bucket(axis_offsets(*sizes, "cpu"), bucket_size, max_distance)
        row = (bucket + bucket_size).clamp(0, 2 * bucket_size - 1)
        axes.append(torch.unique(row.to(device), return_inverse=True))
    (rows, row), (columns, column) = axes
    pair = row[:, None, :, None] * len(columns) + column[None, :, None, :]
    # (H1, W1, H2, W2) -> (N1, N2)
    return rows, columns, pair.reshape(first[0] * first[1], second[0] * second[1])


def _check(
    bucket_size: int, max_distance: int, any_term: bool, mapping: str, p2c_offset: str
) -> None:
    if bucket_size < 2 or bucket_size % 2:
        raise ValueError(f"Disentangled: bucket_size must be even and positive, got {bucket_size}")
    if max_distance - 1 <= bucket_size // 2:
        raise ValueError(
            f"Disentangled: max_distance={max_distance} leaves nothing beyond the exact buckets of "
            f"bucket_size={bucket_size}; it must be above {bucket_size // 2 + 1}"
        )
    if not any_term:
        raise ValueError("Disentangled: c2p and p2c are both off, so nothing is encoded")
    if mapping not in ("cross", "product"):
        raise ValueError(f"Disentangled: mapping must be 'cross' or 'product', got {mapping!r}")
    if p2c_offset not in ("code", "paper"):
        raise ValueError(f"Disentangled: p2c_offset must be 'code' or 'paper', got {p2c_offset!r}")
