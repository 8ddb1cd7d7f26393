"""Locally enhanced position encoding (LePE): a depth-wise convolution of the values."""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from relpos_mm.registry import POSITIONS

from .arguments import require_counts
from .base import Padding, PositionEncoding
from .grid import Grid, Size, as_size
from .precision import call_promoted
from .valid_region import zero_padding


@POSITIONS.register_module()
class LocalEnhanced(PositionEncoding):
    """``softmax(q k^T / sqrt(d)) v + DWConv(v)``, before the output projection.

    Source: CSWin Transformer, "locally-enhanced positional encoding". Here the convolution runs
    over the value map as it was before any window was cut or shifted: inside a shifted window it
    would mix tokens from opposite borders of the map. ``local`` is CSWin's released form, which
    cuts the convolution at the border of each stripe; it exists where windows are not shifted. Any
    map size. Weights start as torch has it and are decayed, as released; the name ``get_v`` is
    CSWin's. With valid regions padding is zeroed before the convolution.

    Args:
        embed_dims: Channels C.
        kernel_size: Side of the kernel, odd.
        local: Cut the convolution at the borders of ``window_size``.
        window_size: Window or stripe ``(Wh, Ww)`` of the attention; None where every grid handed
            over is one window.
        shifted: Whether the host shifts the windows.

    Raises:
        ValueError: An even kernel, ``local`` under shifted windows, or unequal grids of queries and
            keys.
    """

    slug: ClassVar[str] = "lepe"
    # Content next to the border differs from content in the middle: that is the encoding.
    translation_equivariant: ClassVar[bool] = False
    padding: Padding = "needs_valid"

    def __init__(
        self,
        *,
        embed_dims: int,
        kernel_size: int = 3,
        local: bool = False,
        window_size: int | Size | None = None,
        shifted: bool = False,
    ) -> None:
        super().__init__()
        require_counts("LocalEnhanced", embed_dims=embed_dims, kernel_size=kernel_size)
        if kernel_size % 2 == 0:
            raise ValueError(f"LocalEnhanced: kernel_size must be odd, got {kernel_size}")
        if local and shifted:
            raise ValueError(
                "LocalEnhanced: local=True cuts at unshifted windows, but this block shifts them; "
                "use local=False"
            )
        self.local = local
        self.window_size = (
            None if window_size is None else as_size("LocalEnhanced: window_size", window_size)
        )
        self.get_v = nn.Conv2d(
            embed_dims, embed_dims, kernel_size, padding=kernel_size // 2, groups=embed_dims
        )

    def value(self, v: Tensor, grid: Grid) -> Tensor:
        if grid.q != grid.k:
            raise ValueError(
                f"LocalEnhanced: query grid {grid.q} and key grid {grid.k} differ; the convolved "
                "values need a query each"
            )
        batch, heads, tokens, width = v.shape
        # (B, h, N, d) -> (B, H, W, C) -> (B, C, H, W)
        value_map = v.transpose(1, 2).reshape(batch, *grid.q, heads * width)
        value_map = zero_padding(value_map, grid).permute(0, 3, 1, 2)
        if self.local and self.window_size is not None:
            out = self._by_window(value_map, self.window_size)
        else:
            out = call_promoted(self.get_v, value_map)
        return out.view(batch, heads, width, tokens).transpose(2, 3)

    def _by_window(self, value_map: Tensor, window: Size) -> Tensor:
        """Convolve each window of ``(B, C, H, W)`` by itself; the last windows may be cut."""
        batch, channels, height, width = value_map.shape
        padded = F.pad(value_map, (0, -width % window[1], 0, -height % window[0]))
        rows, columns = padded.shape[2] // window[0], padded.shape[3] // window[1]
        windows = padded.view(batch, channels, rows, window[0], columns, window[1])
        # (B, rows, columns, C, Wh, Ww)
        windows = windows.permute(0, 2, 4, 1, 3, 5)
        out = (
            call_promoted(self.get_v, windows.flatten(0, 2))
            .view(windows.shape)
            .permute(0, 3, 1, 4, 2, 5)
        )
        return out.reshape(padded.shape)[:, :, :height, :width].contiguous()

    def no_decay(self) -> tuple[str, ...]:
        return ()

    def extra_repr(self) -> str:
        return f"local={self.local}, window_size={self.window_size}"
