"""Window attention: the host that cuts a map into windows and lets encodings act on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from relpos_mm.encodings.grid import Grid, Size
from relpos_mm.encodings.valid_region import content

from .attention import attend, value_terms
from .positioned_attention import PositionedAttention
from .window_moves import from_windows, to_windows
from .windows import WindowPlan, content_mask, window_plan

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


class WindowAttention(PositionedAttention):
    """Multi-head self-attention in (shifted) windows with a list of position encodings.

    The q, k and v of real tokens alone are computed, and those of one token of zeros that fills all
    padding slots: the published code zeroes padding after the norm, too.

    Args:
        embed_dims: Channels C.
        num_heads: Heads h; must divide C.
        window_size: Window ``(Wh, Ww)``.
        shifted: Whether the windows are shifted by half a window.
        small_map: Rule for maps not larger than the window, see :func:`window_geometry`.
        mask_padding: Hide padding from attention, that of windows and, where the grid has a valid
            region, that of batches; the published models do neither.
        context: Facts for the encodings, see :func:`relpos_mm.registry.build_positions`.
        **layer: See :class:`~relpos_mm.models.positioned_attention.PositionedAttention`; its
            ``position`` holds the ``block`` and ``qk_input`` encodings.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        window_size: Size,
        *,
        shifted: bool,
        context: Mapping[str, Any],
        small_map: SmallMap = "pad",
        mask_padding: bool = False,
        **layer: Any,
    ) -> None:
        context = {**context, "window_size": window_size, "shifted": shifted}
        super().__init__(embed_dims, num_heads, context=context, **layer)
        self.window_size = window_size
        self.shifted = shifted
        self.small_map = small_map
        self.mask_padding = mask_padding

    def _geometry(self, size: Size) -> tuple[Size, Size]:
        return window_geometry(size, self.window_size, self.shifted, self.small_map)

    def plan(self, size: Size, device: torch.device) -> WindowPlan:
        """How a map of ``size`` is cut into windows, from the cache."""
        return window_plan(size, *self._geometry(size), self.mask_padding, device)

    def forward(self, x: Tensor, grid: Grid, plan: WindowPlan | None = None) -> Tensor:
        """Attend within windows; ``(B, H, W, C)`` in and out, on the whole map's ``grid``.

        A compiled block cannot look the plan of the map's size up, so it is given :meth:`plan`.
        """
        batch, height, width, channels = x.shape
        window, _ = self._geometry((height, width))
        plan = self.plan((height, width), x.device) if plan is None else plan
        mask, inside = plan.mask, content(grid, batch, x.device)
        if self.mask_padding and inside is not None:
            mask = content_mask(plan, inside.expand(batch, -1, -1).flatten(1))
        located = x
        for encoding in self.encodings:
            if encoding.site == "qk_input":
                located = encoding.embed(located, grid)
        tokens = _with_filler(x, plan)
        moved = tokens if located is x else _with_filler(located, plan)
        qkv = self.project(tokens, moved)
        q, k, v = to_windows(qkv, plan, 3, self.num_heads)
        out = attend(q, k, v, self.encodings, Grid(window), mask=mask, value_hooks=False)
        out = from_windows(out, plan)
        for term in value_terms(
            self.heads(qkv[:, : height * width], batch)[2], self.encodings, grid
        ):
            out = out + term.transpose(1, 2).flatten(2)
        return self.proj(out).view(batch, height, width, channels)


def _with_filler(x: Tensor, plan: WindowPlan) -> Tensor:
    """The tokens of a map ``(B, H, W, C)``, and one of zeros where the plan has padding slots."""
    tokens = x.flatten(1, 2)
    # A compiler would make one graph with and one without.
    padded = torch.compiler.is_dynamo_compiling() or plan.padded
    return F.pad(tokens, (0, 0, 0, 1)) if padded else tokens
