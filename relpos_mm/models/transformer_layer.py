"""Transformer layer on one global grid, the common part of DETR's encoder and of ViT."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint as cp
from mmcv.cnn.bricks import DropPath
from mmcv.cnn.bricks.transformer import FFN
from mmengine.model import BaseModule
from torch import Tensor, nn

from relpos_mm.encodings.base import PositionEncoding
from relpos_mm.encodings.grid import Grid
from relpos_mm.registry import build_positions

from .attention import attend


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


class GlobalAttention(BaseModule):
    """Multi-head self-attention over a whole grid with a list of position encodings.

    Args:
        embed_dims: Channels C.
        num_heads: Heads h; must divide C.
        position: The ``block`` encodings as config dicts.
        context: Facts for the encodings, see :func:`relpos_mm.registry.build_positions`.
        qkv_bias: Whether q, k and v have a bias.
        attn_drop: Dropout of the attention.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        *,
        position: Sequence[Mapping[str, Any]],
        context: Mapping[str, Any],
        qkv_bias: bool = True,
        attn_drop: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.attn_drop = attn_drop
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

    def forward(
        self,
        x: Tensor,
        grid: Grid,
        *,
        query_pos: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """Attend; ``(B, N, C)`` in and out.

        Args:
            x: Tokens, prefix tokens first, then the grid row by row.
            grid: Where they stand.
            query_pos: ``(1|B, N, C)``, added to the input of q and k and not of v.
            key_padding_mask: ``(B, N)`` bool, True = hidden.
        """
        if query_pos is None:
            q, k, v = (self._heads(part) for part in self.qkv(x).chunk(3, dim=-1))
        else:
            split = 2 * x.shape[-1]
            weight, bias = self.qkv.weight, self.qkv.bias
            qk_bias, v_bias = (None, None) if bias is None else (bias[:split], bias[split:])
            located = F.linear(x + query_pos.to(x.dtype), weight[:split], qk_bias)
            q, k = (self._heads(part) for part in located.chunk(2, dim=-1))
            v = self._heads(F.linear(x, weight[split:], v_bias))
        out = attend(
            q,
            k,
            v,
            self.encodings,
            grid,
            key_padding_mask=key_padding_mask,
            dropout=self.attn_drop if self.training else 0.0,
        )
        return self.proj(out.transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor) -> Tensor:
        """``(B, N, C) -> (B, h, N, d)``."""
        return x.unflatten(2, (self.num_heads, -1)).transpose(1, 2)


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

    def forward(
        self,
        x: Tensor,
        grid: Grid,
        query_pos: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """``(B, N, C)`` in and out; arguments as in :meth:`GlobalAttention.forward`."""
        if self.with_cp and torch.is_grad_enabled():
            return cp.checkpoint(
                self._forward, x, grid, query_pos, key_padding_mask, use_reentrant=False
            )
        return self._forward(x, grid, query_pos, key_padding_mask)

    def _forward(
        self, x: Tensor, grid: Grid, query_pos: Tensor | None, key_padding_mask: Tensor | None
    ) -> Tensor:
        x = embed_tokens(x, encodings_of(self.attn.position, "block"), grid)
        out = self.attn(
            self.norm1(x) if self.pre_norm else x,
            grid,
            query_pos=query_pos,
            key_padding_mask=key_padding_mask,
        )
        x = x + self.drop_path(self.drop(out))
        if self.pre_norm:
            return self.ffn(self.norm2(x), identity=x)
        return self.norm2(self.ffn(self.norm1(x)))
