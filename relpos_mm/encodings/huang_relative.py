"""Relative position vectors that meet both the query and the key (Huang et al., method 4)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from relpos_mm.registry import POSITIONS

from .arguments import head_width
from .base import PositionEncoding, Resized
from .grid import Grid, Size
from .lookup import Lookup
from .offset_vectors import Mapping, OffsetVectors
from .resize import ResizeMode


@POSITIONS.register_module()
class HuangRelative(PositionEncoding):
    """``e = (q . k + q . a[c] + k . a[c]) / sqrt(d)``: ``(q + a) . (k + a)`` without ``a . a``.

    Source: "Improve Transformer Models with Better Relative Position Embeddings", method 4. In 2-D
    ``c`` is a pair of clipped offsets (``product``) or the sum of two vectors (``cross``). No
    public 2-D code exists; on a grid of one row it is Hugging Face BERT's ``relative_key_query``,
    which does not clip.

    Scale rule: inside, both position terms are divided by sqrt(d) too. Sign rule: offsets are query
    minus key in both terms, rows first, rising. Vectors start from a truncated normal of 0.02 and
    are not decayed.

    Args:
        embed_dims: Channels C; d = C / h.
        num_heads: Attention heads h.
        clip: Largest offset with a row of its own, one number or ``(Ky, Kx)``.
        mapping: ``product`` or ``cross``.
        shared_heads: One set of vectors for all heads, as the original has it.
    """

    slug: ClassVar[str] = "huang"
    free: ClassVar[frozenset[str]] = frozenset({"clip"})

    def __init__(
        self,
        *,
        embed_dims: int,
        num_heads: int,
        shared_heads: bool = True,
        mapping: Mapping = "product",
        clip: int | Size = 3,
    ) -> None:
        super().__init__()
        heads = None if shared_heads else num_heads
        width = head_width("HuangRelative", embed_dims, num_heads)
        self.vectors = OffsetVectors(width, heads, clip, mapping)

    def bias(self, q: Tensor, k: Tensor, grid: Grid, scale: float) -> Tensor:
        by_query = self.vectors.query_logits(q * scale, grid)
        return by_query + self.vectors.key_logits(k * scale, grid)  # type: ignore[operator]

    def lookups(self, q: Tensor, k: Tensor, grid: Grid, scale: float) -> list[Lookup]:
        if self.vectors.mapping != "product":
            return []
        return [
            self.vectors.lookup(q * scale, grid),
            self.vectors.lookup(k * scale, grid, by_key=True),
        ]

    def transfer(
        self,
        state: dict[str, Tensor],
        prefix: str,
        *,
        mode: ResizeMode = "scale",
        source: dict[str, Size] | None = None,
    ) -> list[Resized]:
        """Keep every offset's vector and repeat the edge, whatever the mode."""
        return self.vectors.resize(state, f"{prefix}vectors.", source)
