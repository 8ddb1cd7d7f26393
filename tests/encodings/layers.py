"""Projections around a bare attention call, as the reference vectors have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch.nn.functional as F
from torch import Tensor


def heads_of(x: Tensor, heads: int) -> Tensor:
    """``(B, N, C) -> (B, h, N, d)``."""
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


def tokens_of(x: Tensor) -> Tensor:
    """``(B, h, N, d) -> (B, N, C)``."""
    return x.transpose(1, 2).flatten(2)


def projected(
    data: Mapping[str, Tensor], names: Sequence[str], heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v ``(B, h, N, d)`` of ``data["x"]`` through layers of these names, in float64."""
    q, k, v = (
        heads_of(
            F.linear(
                data["x"].double(),
                data[f"w.{name}.weight"].double(),
                data[f"w.{name}.bias"].double(),
            ),
            heads,
        )
        for name in names
    )
    return q, k, v
