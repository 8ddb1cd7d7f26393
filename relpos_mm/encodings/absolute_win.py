"""Absolute-win embedding: a table tiled over the windows plus a resized table for the whole map."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relpos_mm.registry import POSITIONS

from .arguments import require_counts
from .base import Padding, PositionEncoding, Resized, Site
from .grid import Grid, Size, as_size
from .resize import ResizeMode, resize_bicubic


@POSITIONS.register_module()
class AbsoluteWin(PositionEncoding):
    """``x(y, x) + E_win(y mod Wh, x mod Ww) + resize(E_glob)(y, x)``.

    Source: "Window Attention is Bugged: How not to Interpolate Position Embeddings" ("absolute
    win"). A table trained under windows becomes periodic in them; resizing it stretches the period
    while the windows keep their size. Here the periodic part is tiled and stays aligned on every
    map, windows must start at (0, 0). Public code differs in the resize of the global part: SAM 2
    uses plain bicubic, timm's Hiera the antialiased kernel, which gives other numbers even when it
    enlarges; choose the one a checkpoint was trained with. Both tile only whole windows; here a map
    of any size is covered and the last windows cut. Names follow SAM 2 (timm: ``pos_embed_win``).
    Neither table is decayed, as intended in the paper (timm's list forgets the window part).

    With valid regions the global part spans each image's content instead of the padded canvas.

    Args:
        embed_dims: Channels C.
        window_size: Window ``(Wh, Ww)`` of the attention that follows.
        global_size: Size ``(H, W)`` of the global table.
        antialias: Kernel of the global part: False as SAM 2, True as timm.
    """

    slug: ClassVar[str] = "abswin"
    free: ClassVar[frozenset[str]] = frozenset({"global_size"})
    site: Site = "stem"
    translation_equivariant: ClassVar[bool] = False
    padding: Padding = "needs_valid"

    def __init__(
        self,
        *,
        embed_dims: int,
        window_size: int | Size,
        global_size: int | Size = (14, 14),
        antialias: bool = False,
    ) -> None:
        super().__init__()
        require_counts("AbsoluteWin", embed_dims=embed_dims)
        self.window_size = as_size("AbsoluteWin: window_size", window_size)
        self.global_size = as_size("AbsoluteWin: global_size", global_size)
        self.antialias = antialias
        self.pos_embed = nn.Parameter(torch.empty(1, embed_dims, *self.global_size))
        self.pos_embed_window = nn.Parameter(torch.empty(1, embed_dims, *self.window_size))
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        nn.init.trunc_normal_(self.pos_embed_window, std=0.02)

    def embed(self, x: Tensor, grid: Grid) -> Tensor:
        sizes = (grid.q,) if grid.valid is None else grid.valid
        parts = []
        for height, width in sizes:
            part = resize_bicubic(self.pos_embed, (height, width), self.antialias)
            parts.append(F.pad(part, (0, grid.q[1] - width, 0, grid.q[0] - height)))
        position = torch.cat(parts) + tile(self.pos_embed_window, grid.q)
        return x + position.permute(0, 2, 3, 1).to(x.dtype)  # (B|1, C, H, W) -> (B|1, H, W, C)

    def transfer(
        self,
        state: dict[str, Tensor],
        prefix: str,
        *,
        mode: ResizeMode = "scale",
        source: dict[str, Size] | None = None,
    ) -> list[Resized]:
        """Resize both tables to this model's, and split a plain absolute table into them.

        A plain table is found as ``absolute_pos_embed`` here or in an ``absolute_table`` beside
        this encoding. The sum stays equal on its own grid if ``global_size`` is that grid or if the
        table is one window.
        """
        records = self._split_plain(state, prefix)
        for name, own in self.named_parameters():
            key = prefix + name
            table = state.get(key)
            if table is None or table.shape == own.shape:
                continue
            if table.ndim != 4 or table.shape[:2] != own.shape[:2]:
                raise ValueError(
                    f"{key}: {tuple(table.shape)} in the checkpoint does not fit "
                    f"{tuple(own.shape)}: the shape must be (1, C, H, W), C equal to embed_dims"
                )
            size = (own.shape[2], own.shape[3])
            state[key] = resize_bicubic(table, size, self.antialias)
            how = "bicubic, antialiased" if self.antialias else "bicubic"
            records.append(Resized(key, tuple(table.shape), tuple(own.shape), how))
        return records

    def _split_plain(self, state: dict[str, Tensor], prefix: str) -> list[Resized]:
        beside = prefix.removesuffix(f"{self.name}.") + "absolute_table."
        records = []
        for key in (prefix + "absolute_pos_embed", beside + "absolute_pos_embed"):
            if key not in state:
                continue
            table = state.pop(key)
            window, rest = split_absolute(table, self.window_size)
            state[prefix + "pos_embed_window"], state[prefix + "pos_embed"] = window, rest
            how = f"split into a part tiled by {self.window_size} and the rest"
            if rest.any() and tuple(table.shape[2:]) != self.global_size:
                how += f"; the sum changes, global_size={tuple(table.shape[2:])} would keep it"
            records.append(Resized(key, tuple(table.shape), tuple(window.shape), how))
        return records

    def extra_repr(self) -> str:
        return (
            f"embed_dims={self.pos_embed.shape[1]}, window_size={self.window_size}, "
            f"global_size={self.global_size}, antialias={self.antialias}"
        )


def tile(window: Tensor, size: Size) -> Tensor:
    """Repeat ``(1, C, Wh, Ww)`` from the top left corner over ``size``, the last copies cut."""
    rows = torch.arange(size[0], device=window.device) % window.shape[2]
    columns = torch.arange(size[1], device=window.device) % window.shape[3]
    return window[:, :, rows[:, None], columns]


def split_absolute(table: Tensor, window_size: Size) -> tuple[Tensor, Tensor]:
    """Split a plain absolute table so that ``tile(window) + rest`` equals it.

    Args:
        table: ``(1, C, H, W)``.
        window_size: Window of the attention.

    Returns:
        The part that repeats with the windows ``(1, C, Wh, Ww)``, the mean over all of them, and
        the rest ``(1, C, H, W)``, which is zero when the table is a single window.
    """
    height, width = table.shape[2:]
    rows = torch.arange(height, device=table.device) % window_size[0]
    columns = torch.arange(width, device=table.device) % window_size[1]
    place = (rows[:, None] * window_size[1] + columns).flatten()
    total = table.new_zeros(*table.shape[:2], window_size[0] * window_size[1])
    total.index_add_(2, place, table.flatten(2))
    count = torch.bincount(place, minlength=total.shape[2]).clamp(min=1)
    window = (total / count).view(*table.shape[:2], *window_size)
    return window, table - tile(window, (height, width))
