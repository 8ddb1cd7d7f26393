"""What every attention layer with a list of position encodings consists of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.model import BaseModule
from torch import Tensor, nn

from relpos_mm.encodings.base import PositionEncoding
from relpos_mm.registry import build_positions


class PositionedAttention(BaseModule):
    """Projections of multi-head self-attention and the encodings that act in it.

    Args:
        embed_dims: Channels C.
        num_heads: Heads h; must divide C.
        position: The encodings of this layer as config dicts.
        context: Facts for the encodings, see :func:`relpos_mm.registry.build_positions`.
        qkv_bias: Whether q, k and v have a bias.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        *,
        position: Sequence[Mapping[str, Any]],
        context: Mapping[str, Any],
        qkv_bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dims, 3 * embed_dims, bias=qkv_bias)
        self.proj = nn.Linear(embed_dims, embed_dims)
        encodings = build_positions(position, embed_dims=embed_dims, num_heads=num_heads, **context)
        for encoding in encodings:
            encoding.bind(proj=self.qkv)
        self.position = nn.ModuleDict({encoding.name: encoding for encoding in encodings})

    @property
    def encodings(self) -> list[PositionEncoding]:
        """This layer's encodings in list order."""
        return list(self.position.values())  # type: ignore[arg-type]

    def project(self, x: Tensor, located: Tensor) -> Tensor:
        """q and k of ``located`` and v of ``x``, side by side: ``(..., C) -> (..., 3 C)``."""
        if located is x:
            return self.qkv(x)
        split = 2 * x.shape[-1]
        weight, bias = self.qkv.weight, self.qkv.bias
        qk_bias, v_bias = (None, None) if bias is None else (bias[:split], bias[split:])
        qk = F.linear(located, weight[:split], qk_bias)
        return torch.cat((qk, F.linear(x, weight[split:], v_bias)), dim=-1)

    def heads(self, qkv: Tensor, batch: int) -> Tensor:
        """Split ``(..., 3 C)`` into ``(3, batch, h, N, d)``."""
        width = qkv.shape[-1] // 3 // self.num_heads
        return qkv.reshape(batch, -1, 3, self.num_heads, width).permute(2, 0, 3, 1, 4)
