"""Absolute position embedding: one learned vector per place of the pre-training grid."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from relpos_mm.registry import POSITIONS

from .arguments import require_counts
from .base import Padding, PositionEncoding, Resized, Site
from .grid import Grid, Size, as_size
from .resize import ResizeMode, resize_absolute


@POSITIONS.register_module()
class AbsoluteTable(PositionEncoding):
    """Learned table added to the tokens after the patch embedding: ``x(y, x) + E(y, x)``.

    Source: Swin Transformer, section 4.4 and Table 4 ("abs. pos."); dense use with a bicubic resize
    to the actual grid follows the released detection code (the paper does not say how). The table
    has one shape everywhere, ``absolute_pos_embed`` of ``(1, C, H, W)`` on the pre-training grid,
    so a checkpoint tells its own grid.

    The embedding is stretched over the whole padded canvas, as in the released code: an image's
    result depends on the padding that its batch mates cause.

    Args:
        embed_dims: Channels C of the tokens.
        grid_size: Pre-training grid ``(H, W)`` in tokens.
        prefix_tokens: Tokens before the grid with a vector of their own, as ViT's class token has:
            ``prefix_pos_embed`` of ``(1, P, C)``; 0 for none.

    Raises:
        ValueError: A size or a number that no table can have.
    """

    slug: ClassVar[str] = "abs"
    free: ClassVar[frozenset[str]] = frozenset({"prefix_tokens"})
    site: Site = "stem"
    translation_equivariant: ClassVar[bool] = False
    padding: Padding = "unsafe"

    def __init__(self, *, embed_dims: int, grid_size: int | Size, prefix_tokens: int = 0) -> None:
        super().__init__()
        require_counts("AbsoluteTable", embed_dims=embed_dims)
        require_counts("AbsoluteTable", least=0, prefix_tokens=prefix_tokens)
        self.grid_size = as_size("AbsoluteTable: grid_size", grid_size)
        self.absolute_pos_embed = nn.Parameter(torch.empty(1, embed_dims, *self.grid_size))
        nn.init.trunc_normal_(self.absolute_pos_embed, std=0.02)
        self.prefix_pos_embed: nn.Parameter | None = None
        if prefix_tokens:
            self.prefix_pos_embed = nn.Parameter(torch.empty(1, prefix_tokens, embed_dims))
            nn.init.trunc_normal_(self.prefix_pos_embed, std=0.02)

    def embed_prefix(self, x: Tensor) -> Tensor:
        return x if self.prefix_pos_embed is None else x + self.prefix_pos_embed.to(x.dtype)

    def embed(self, x: Tensor, grid: Grid) -> Tensor:
        position = resize_absolute(self.absolute_pos_embed, grid.q)
        return x + position.permute(0, 2, 3, 1).to(x.dtype)  # (1, C, H, W) -> (1, H, W, C)

    def transfer(
        self,
        state: dict[str, Tensor],
        prefix: str,
        *,
        mode: ResizeMode = "scale",
        source: dict[str, Size] | None = None,
    ) -> list[Resized]:
        """Resize bicubically to this grid; only ``scale`` exists for an absolute table.

        A flat table ``(1, L, C)`` is read row by row when it has exactly this grid's L tokens.
        """
        key = prefix + "absolute_pos_embed"
        table = state.get(key)
        own = tuple(self.absolute_pos_embed.shape)
        if table is None or tuple(table.shape) == own:
            return []
        if table.ndim == 3 and tuple(table.shape) == (
            1,
            self.grid_size[0] * self.grid_size[1],
            own[1],
        ):
            # The flat form of classifiers; its rows are this model's own pre-training grid.
            state[key] = table.transpose(1, 2).reshape(own)
            return [Resized(key, tuple(table.shape), own, "flat rows read as this grid")]
        if table.ndim != 4 or table.shape[:2] != own[:2]:
            raise ValueError(
                f"{key}: {tuple(table.shape)} in the checkpoint does not fit {own}: the shape must "
                "be (1, C, H, W) and C must equal embed_dims; convert a flat (1, L, C) table with "
                "tools/transfer.py, which is told its grid"
            )
        state[key] = resize_absolute(table, self.grid_size)
        return [Resized(key, tuple(table.shape), own, "bicubic")]

    def extra_repr(self) -> str:
        return f"embed_dims={self.absolute_pos_embed.shape[1]}, grid_size={self.grid_size}"
