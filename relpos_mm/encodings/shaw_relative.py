"""Relative position vectors on keys, and optionally on values (Shaw, Uszkoreit, Vaswani)."""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from relpos_mm.registry import POSITIONS

from .arguments import head_width
from .base import PositionEncoding, Resized
from .grid import Grid, Size
from .lookup import Lookup, ValueLookup
from .offset_vectors import Mapping, OffsetVectors
from .resize import ResizeMode


@POSITIONS.register_module()
class ShawRelative(PositionEncoding):
    """``e = q . (k + aK[c]) / sqrt(d)`` and, with ``values``, ``z = sum softmax(e) (v + aV[c])``.

    Source: "Self-Attention with Relative Position Representations", equations 3 to 5; the 2-D forms
    are those that iRPE compares with: ``product`` has one vector per pair of clipped offsets,
    ``cross`` adds one per row offset and one per column offset. No public 2-D code exists; on a
    grid of one row it is the 1-D method (Hugging Face BERT ``relative_key``, which does not clip).

    Scale rule: inside, the position term is divided by sqrt(d) too. Sign rule: offsets are query
    minus key, rows first, rising; the paper and tensor2tensor index key minus query: flip their
    tables. Vectors start from a truncated normal of 0.02 (the original has its framework's default,
    iRPE's adaptation zero) and are not decayed.

    Args:
        embed_dims: Channels C; d = C / h.
        num_heads: Attention heads h.
        clip: Largest offset with a row of its own, one number or ``(Ky, Kx)``; 6 is exact in a 7 x
            7 window.
        mapping: ``product`` or ``cross``.
        values: Add the value term; it needs the attention matrix.
        shared_heads: One set of vectors for all heads, as the original has it.
        asymmetric: Clip to ``[-K, K - 1]`` as SpeechT5 does.
        factored: Hand a ``cross`` term over as ``a @ b^T``, see ``DecomposedBias``.
    """

    slug: ClassVar[str] = "shaw"
    free: ClassVar[frozenset[str]] = frozenset({"clip", "factored"})

    def __init__(
        self,
        *,
        embed_dims: int,
        num_heads: int,
        clip: int | Size = 3,
        mapping: Mapping = "product",
        values: bool = False,
        shared_heads: bool = True,
        asymmetric: bool = False,
        factored: bool = True,
    ) -> None:
        super().__init__()
        self.needs_attn = values
        self.factored = factored
        heads = None if shared_heads else num_heads
        width = head_width("ShawRelative", embed_dims, num_heads)
        vectors = (width, heads, clip, mapping, asymmetric)
        self.key_vectors = OffsetVectors(*vectors)
        self.value_vectors = OffsetVectors(*vectors) if values else None

    def bias(
        self, q: Tensor, k: Tensor, grid: Grid, scale: float
    ) -> Tensor | tuple[Tensor, Tensor]:
        return self.key_vectors.query_logits(q * scale, grid, self.factored)

    def lookups(self, q: Tensor, k: Tensor, grid: Grid, scale: float) -> list[Lookup]:
        product = self.key_vectors.mapping == "product"
        return [self.key_vectors.lookup(q * scale, grid)] if product else []

    def value_attn(self, attn: Tensor, v: Tensor, grid: Grid) -> Tensor | None:
        if self.value_vectors is None:
            return None
        prefix = grid.prefix
        term = self.value_vectors.value_sum(attn[:, :, prefix:, prefix:], grid)
        return F.pad(term, (0, 0, prefix, 0))  # prefix tokens have no place

    def value_lookups(self, grid: Grid) -> list[ValueLookup]:
        vectors = self.value_vectors
        if vectors is None or vectors.mapping != "product" or grid.prefix:
            return []  # prefix tokens have no place in the index
        return [vectors.value_lookup(grid)]

    def transfer(
        self,
        state: dict[str, Tensor],
        prefix: str,
        *,
        mode: ResizeMode = "scale",
        source: dict[str, Size] | None = None,
    ) -> list[Resized]:
        """Keep every offset's vector and repeat the edge, whatever the mode."""
        records = self.key_vectors.resize(state, f"{prefix}key_vectors.", source)
        if self.value_vectors is not None:
            records += self.value_vectors.resize(state, f"{prefix}value_vectors.", source)
        return records
