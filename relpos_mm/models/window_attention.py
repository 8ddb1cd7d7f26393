"""Window attention: the host that cuts a map into windows and lets encodings act on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from mmengine.model import BaseModule
from torch import Tensor, nn

from relpos_mm.encodings.base import PositionEncoding
from relpos_mm.encodings.grid import Grid, Size
from relpos_mm.registry import build_positions

from .attention import dot_product_attention, value_terms
from .windows import window_plan

SmallMap = Literal["pad", "shrink"]


def window_geometry(
    size: Size, window: Size, shifted: bool, small_map: SmallMap
) -> tuple[Size, Size]:
    """Window and shift for a map of ``size``.

    ``pad``, the rule of the released dense models: always full windows, always shifted in odd
    blocks. ``shrink``, the rule of the released classifier: when the smaller side of the map is not
    larger than the window, the window becomes that side and nothing is shifted.
    """
    side = min(size)
    if small_map == "shrink" and (size[0] <= window[0] or size[1] <= window[1]):
        return (min(window[0], side), min(window[1], side)), (0, 0)
    return window, (window[0] // 2, window[1] // 2) if shifted else (0, 0)


class WindowAttention(BaseModule):
    """Multi-head self-attention in (shifted) windows with a list of position encodings.

    The q, k and v of real tokens alone are computed; a padding slot gets the projection's bias,
    which equals what the published code computes from tokens that it zeroes after the norm.

    Args:
        embed_dims: Channels C.
        num_heads: Heads h; must divide C.
        window_size: Window ``(Wh, Ww)``.
        shifted: Whether the windows are shifted by half a window.
        position: The ``block`` and ``qk_input`` encodings as config dicts.
        context: Facts for the encodings, see :func:`relpos_mm.registry.build_positions`.
        qkv_bias: Whether q, k and v have a bias.
        small_map: Rule for maps not larger than the window, see :func:`window_geometry`.
        mask_padding: Hide padding from attention; the published models do not.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        window_size: Size,
        *,
        shifted: bool,
        position: Sequence[Mapping[str, Any]],
        context: Mapping[str, Any],
        qkv_bias: bool = True,
        small_map: SmallMap = "pad",
        mask_padding: bool = False,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.window_size = window_size
        self.shifted = shifted
        self.small_map = small_map
        self.mask_padding = mask_padding
        self.qkv = nn.Linear(embed_dims, 3 * embed_dims, bias=qkv_bias)
        self.proj = nn.Linear(embed_dims, embed_dims)
        encodings = build_positions(
            position,
            embed_dims=embed_dims,
            num_heads=num_heads,
            window_size=window_size,
            shifted=shifted,
            **context,
        )
        for encoding in encodings:
            encoding.bind(proj=self.qkv)
        self.position = nn.ModuleDict({encoding.name: encoding for encoding in encodings})

    @property
    def encodings(self) -> list[PositionEncoding]:
        """This block's encodings in list order."""
        return list(self.position.values())  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """Attend within windows; ``(B, H, W, C)`` in and out."""
        batch, height, width, channels = x.shape
        window, shift = window_geometry(
            (height, width), self.window_size, self.shifted, self.small_map
        )
        plan = window_plan((height, width), window, shift, self.mask_padding, x.device)
        qkv = self._project(x).flatten(1, 2)  # (B, H * W, 3 C)
        tokens = qkv
        if plan.padded:
            bias = qkv.new_zeros(3 * channels) if self.qkv.bias is None else self.qkv.bias
            tokens = torch.cat((qkv, bias.to(qkv.dtype).expand(batch, 1, -1)), dim=1)
        q, k, v = self._heads(tokens.index_select(1, plan.index), batch * plan.num_windows)
        out = dot_product_attention(q, k, v, self.encodings, Grid(window), mask=plan.mask)
        # (B * windows, h, N, d) -> (B, windows * N, C) -> (B, H * W, C)
        out = out.transpose(1, 2).reshape(batch, -1, channels).index_select(1, plan.slots)
        for term in value_terms(self._heads(qkv, batch)[2], self.encodings, Grid((height, width))):
            out = out + term.transpose(1, 2).flatten(2)
        return self.proj(out).view(batch, height, width, channels)

    def _heads(self, qkv: Tensor, batch: int) -> Tensor:
        """Split ``(..., 3 C)`` into ``(3, batch, h, N, d)``."""
        return qkv.reshape(
            batch, -1, 3, self.num_heads, qkv.shape[-1] // 3 // self.num_heads
        ).permute(2, 0, 3, 1, 4)

    def _project(self, x: Tensor) -> Tensor:
        """q, k and v of a map; encodings of site ``qk_input`` reach q and k, not v."""
        located, grid = x, Grid((x.shape[1], x.shape[2]))
        for encoding in self.encodings:
            if encoding.site == "qk_input":
                located = encoding.embed(located, grid)
        if located is x:
            return self.qkv(x)
        split = 2 * x.shape[-1]
        weight, bias = self.qkv.weight, self.qkv.bias
        qk_bias, v_bias = (None, None) if bias is None else (bias[:split], bias[split:])
        qk = F.linear(located, weight[:split], qk_bias)
        return torch.cat((qk, F.linear(x, weight[split:], v_bias)), dim=-1)
