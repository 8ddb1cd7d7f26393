"""Logits that pairs of tokens pick from a few numbers per token."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .contextual import pick


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
