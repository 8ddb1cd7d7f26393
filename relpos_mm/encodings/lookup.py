"""Terms that pairs of tokens pick from a few rows, before they are expanded to all pairs."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .contextual import bucket_mass, pick
from .precision import widen


@dataclass(frozen=True)
class Lookup:
    """Logits ``(B, h, Nq, Nk)`` that are read from one row of K numbers per token.

    Attributes:
        values: ``(B|1, h|1, Nq, K)``, or ``(B|1, h|1, Nk, K)`` when ``by_key``.
        index: ``(Nq, Nk)`` int64, ``(Nk, Nq)`` when ``by_key``.
        by_key: False: ``logit[i, j] = values[i, index[i, j]]``. True: ``values[j, index[j, i]]``.
    """

    values: Tensor
    index: Tensor
    by_key: bool = False

    def dense(self) -> Tensor:
        """Expand to ``(B|1, h|1, Nq, Nk)``."""
        logits = pick(self.values, self.index)
        return logits.transpose(-2, -1) if self.by_key else logits


@dataclass(frozen=True)
class ValueLookup:
    """Outputs ``out[i] = sum_j attn[i, j] table[index[i, j]]``.

    Attributes:
        table: ``(1|h, K, d)``.
        index: ``(Nq, Nk)`` int64.
    """

    table: Tensor
    index: Tensor

    def read(self, attn: Tensor) -> Tensor:
        """Return the outputs ``(B, h, Nq, d)`` for attention ``(B, h, Nq, Nk)``."""
        # A bucket may gather hundreds of small weights, too many for half precision.
        masses = bucket_mass(widen(attn), self.index, self.table.shape[1]).to(attn.dtype)
        # A shared table is one plain matrix product over all heads.
        table = self.table[0] if len(self.table) == 1 else self.table
        return masses @ table.to(attn.dtype)
