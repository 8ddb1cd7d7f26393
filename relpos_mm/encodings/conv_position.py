"""Conditional position encoding (PEG): a depth-wise convolution that sees the map's border."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from relpos_mm.registry import POSITIONS

from .arguments import require_counts
from .base import Padding, PositionEncoding, Site
from .grid import Grid
from .precision import call_promoted
from .valid_region import zero_padding


@POSITIONS.register_module()
class ConvPosition(PositionEncoding):
    """``x + DWConv(x)`` on the whole map, zeros beyond its border, once per stage.

    Source: "Conditional Positional Encodings for Vision Transformers" (PEG). Position comes from
    the zero border alone. As in Twins and CPVT-v2 there is one per stage, after its first block;
    ``site="block"`` puts one before every block. Weights start from a normal of He's fan-out
    variance, the bias at 0, and neither is decayed (Twins). Any map size; windows do not matter,
    since it acts on the map. Padding must be zero before the convolution, or it moves the border:
    with valid regions the encoding zeroes it.

    Args:
        embed_dims: Channels C.
        kernel_size: Side of the kernel, odd.
        site: ``stage`` or ``block``.

    Raises:
        ValueError: An even kernel or another site.
    """

    slug: ClassVar[str] = "peg"
    site: Site = "stage"
    # Content next to the border differs from content in the middle: that is the encoding.
    translation_equivariant: ClassVar[bool] = False
    padding: Padding = "needs_valid"

    def __init__(self, *, embed_dims: int, kernel_size: int = 3, site: Site = "stage") -> None:
        super().__init__()
        require_counts("ConvPosition", embed_dims=embed_dims, kernel_size=kernel_size)
        if kernel_size % 2 == 0:
            raise ValueError(f"ConvPosition: kernel_size must be odd, got {kernel_size}")
        if site not in ("stage", "block"):
            raise ValueError(f"ConvPosition: site must be 'stage' or 'block', got {site!r}")
        self.site = site
        self.proj = nn.Conv2d(
            embed_dims, embed_dims, kernel_size, padding=kernel_size // 2, groups=embed_dims
        )
        # The fan-out of a depth-wise convolution is one kernel.
        nn.init.normal_(self.proj.weight, std=2**0.5 / kernel_size)
        nn.init.zeros_(self.proj.bias)  # type: ignore[arg-type]  # never None here

    def embed(self, x: Tensor, grid: Grid) -> Tensor:
        content = zero_padding(x, grid).permute(0, 3, 1, 2)  # (B, H, W, C) -> (B, C, H, W)
        return x + call_promoted(self.proj, content).permute(0, 2, 3, 1).to(x.dtype)
