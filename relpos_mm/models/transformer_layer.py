"""Transformer layer on one global grid, the common part of DETR's encoder and of ViT."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils.checkpoint as cp
from mmcv.cnn.bricks import DropPath
from mmengine.model import BaseModule
from torch import Tensor, nn

from relpos_mm.encodings.base import PositionEncoding
from relpos_mm.encodings.grid import Grid

from .attention import attend
from .mmcv_parts import FFN
from .positioned_attention import PositionedAttention


@dataclass(frozen=True)
class TokenFacts:
    """What all layers of a stack are told about the tokens ``(B, N, C)``.

    Attributes:
        grid: Where they stand: prefix tokens first, then the grid row by row.
        query_pos: ``(1|B, N, C)``, added to the input of q and k and not of v.
        key_padding_mask: ``(B, N)`` bool, True = hidden.
    """

    grid: Grid
    query_pos: Tensor | None = None
    key_padding_mask: Tensor | None = None


def encodings_of(position: nn.ModuleDict, site: str) -> list[PositionEncoding]:
    """Encodings of one site in list order."""
    return [encoding for encoding in position.values() if encoding.site == site]  # type: ignore[misc]


def embed_tokens(x: Tensor, encodings: Iterable[PositionEncoding], grid: Grid) -> Tensor:
    """Apply ``embed`` to tokens ``(B, N, C)``, prefix tokens first, and ``embed_prefix`` to those.

    Raises:
        ValueError: The number of tokens is not that of the grid.
    """
    if x.shape[1] != grid.num_queries:
        raise ValueError(
            f"{x.shape[1]} tokens do not fit the grid {grid.q} with {grid.prefix} prefix tokens, "
            f"which has {grid.num_queries}"
        )
    prefix, tokens = x[:, : grid.prefix], x[:, grid.prefix :].unflatten(1, grid.q)
    for encoding in encodings:
        prefix, tokens = encoding.embed_prefix(prefix), encoding.embed(tokens, grid)
    tokens = tokens.flatten(1, 2)
    return torch.cat((prefix, tokens), dim=1) if grid.prefix else tokens


class GlobalAttention(PositionedAttention):
    """Multi-head self-attention over a whole grid with a list of position encodings.

    Args:
        embed_dims: Channels C.
        num_heads: Heads h; must divide C.
        attn_drop: Dropout of the attention.
        **layer: See :class:`~relpos_mm.models.positioned_attention.PositionedAttention`; its
            ``position`` holds the ``block`` encodings.
    """

    def __init__(
        self, embed_dims: int, num_heads: int, *, attn_drop: float = 0.0, **layer: Any
    ) -> None:
        super().__init__(embed_dims, num_heads, **layer)
        self.attn_drop = attn_drop

    def forward(self, x: Tensor, facts: TokenFacts) -> Tensor:
        """Attend; ``(B, N, C)`` in and out."""
        located = x if facts.query_pos is None else x + facts.query_pos.to(x.dtype)
        q, k, v = self.heads(self.project(x, located), len(x))
        out = attend(
            q,
            k,
            v,
            self.encodings,
            facts.grid,
            key_padding_mask=facts.key_padding_mask,
            dropout=self.attn_drop if self.training else 0.0,
        )
        return self.proj(out.transpose(1, 2).flatten(2))


class TransformerLayer(BaseModule):
    """Self-attention and MLP, normalised before (ViT) or after (DETR) each.

    Args:
        embed_dims: Channels C.
        num_heads: Attention heads.
        feedforward_channels: Hidden width of the MLP.
        pre_norm: Normalise the input of attention and MLP, instead of the sum behind each.
        act: Activation of the MLP.
        drop: Dropout behind attention and inside and behind the MLP.
        drop_path: Rate of stochastic depth.
        norm_eps: Epsilon of the norms.
        with_cp: Recompute the layer in the backward pass to save memory.
        **attention: See :class:`GlobalAttention`.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        feedforward_channels: int,
        *,
        pre_norm: bool,
        act: str,
        drop: float = 0.0,
        drop_path: float = 0.0,
        norm_eps: float = 1e-5,
        with_cp: bool = False,
        **attention: Any,
    ) -> None:
        super().__init__()
        self.pre_norm = pre_norm
        self.with_cp = with_cp
        self.norm1 = nn.LayerNorm(embed_dims, eps=norm_eps)
        self.attn = GlobalAttention(embed_dims, num_heads, **attention)
        self.drop = nn.Dropout(drop)
        self.drop_path = DropPath(drop_path)
        self.norm2 = nn.LayerNorm(embed_dims, eps=norm_eps)
        self.ffn = FFN(
            embed_dims,
            feedforward_channels,
            act_cfg={"type": act},
            ffn_drop=drop,
            dropout_layer={"type": "DropPath", "drop_prob": drop_path},
        )

    def forward(self, x: Tensor, facts: TokenFacts) -> Tensor:
        """``(B, N, C)`` in and out."""
        if self.with_cp and torch.is_grad_enabled():
            return cp.checkpoint(self._forward, x, facts, use_reentrant=False)
        return self._forward(x, facts)

    def _forward(self, x: Tensor, facts: TokenFacts) -> Tensor:
        x = embed_tokens(x, encodings_of(self.attn.position, "block"), facts.grid)
        out = self.attn(self.norm1(x) if self.pre_norm else x, facts)
        x = x + self.drop_path(self.drop(out))
        if self.pre_norm:
            return self.ffn(self.norm2(x), identity=x)
        return self.norm2(self.ffn(self.norm1(x)))
