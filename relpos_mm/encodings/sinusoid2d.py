"""Fixed 2-D sine and cosine embedding, DETR's mask form and the plain one."""

from __future__ import annotations

from collections.abc import Mapping
from math import pi
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from relpos_mm.registry import POSITIONS

from .arguments import require_counts, require_positive
from .base import Padding, PositionEncoding, Site
from .grid import Grid
from .made_once import constant


@POSITIONS.register_module()
class Sinusoid2d(PositionEncoding):
    """``sin(p w_t), cos(p w_t)`` per axis with ``w_t = temperature^(-t / (C / 4))``.

    Source: the 1-D form of "Attention Is All You Need", section 3.5, in the two 2-D layouts of the
    public code. ``detr`` (DETR's ``PositionEmbeddingSine``): positions count VALID tokens from 1
    (0 outside the valid region), normalised by the last one to ``scale``; rows fill the first C/2
    channels, columns the rest, sine and cosine interleaved. ``plain`` (timm, MAE): positions count
    from 0; channels are [sin rows, sin columns, cos rows, cos columns], or with
    ``split_axes`` [sin rows, cos rows, sin columns, cos columns].

    No parameters; recomputed in float32 for every size.

    Args:
        embed_dims: Channels C, a multiple of 4.
        form: ``plain`` or ``detr``.
        temperature: Base of the frequencies.
        normalize: Map positions to ``[0, scale]``. Default: True for ``detr``, False for ``plain``.
            Without a valid region a normalised map depends on the padding of the batch.
        scale: Range of normalised positions; only where they are normalised.
        axis_order: ``yx`` puts rows before columns (both public codes), ``xy`` the reverse.
        split_axes: Keep each axis' sine and cosine together (``plain`` only).
        site: ``stem`` adds it to the tokens once, ``qk_input`` to the input of the q and k
            projections of every layer, as DETR does.

    Raises:
        ValueError: ``embed_dims`` is no multiple of 4, an unknown option value, or an option that
            would have no effect.
    """

    slug: ClassVar[str] = "sin2d"
    site: Site = "stem"
    translation_equivariant: ClassVar[bool] = False

    def __init__(
        self,
        *,
        embed_dims: int,
        form: Literal["plain", "detr"] = "plain",
        temperature: float = 10000.0,
        normalize: bool | None = None,
        scale: float = 2 * pi,
        axis_order: Literal["yx", "xy"] = "yx",
        split_axes: bool = False,
        site: Site = "stem",
    ) -> None:
        super().__init__()
        require_counts("Sinusoid2d", embed_dims=embed_dims)
        require_positive("Sinusoid2d", temperature=temperature, scale=scale)
        if embed_dims % 4:
            raise ValueError(f"Sinusoid2d: embed_dims must be a multiple of 4, got {embed_dims}")
        if form not in ("plain", "detr") or axis_order not in ("yx", "xy"):
            raise ValueError(f"Sinusoid2d: unknown form={form!r} or axis_order={axis_order!r}")
        if site not in ("stem", "qk_input"):
            raise ValueError(f"Sinusoid2d: site must be 'stem' or 'qk_input', got {site!r}")
        normalize = form == "detr" if normalize is None else normalize
        if split_axes and form == "detr":
            raise ValueError(
                "Sinusoid2d: split_axes=True has no effect with form='detr'; leave it out"
            )
        if scale != 2 * pi and not normalize:
            raise ValueError(
                f"Sinusoid2d: scale={scale!r} has no effect where positions are not normalised; "
                "leave it out or set normalize=True"
            )
        self.embed_dims = embed_dims
        self.form = form
        self.temperature = temperature
        self.normalize = normalize
        self.scale = scale
        self.axis_order = axis_order
        self.split_axes = split_axes
        self.site = site
        self.padding: Padding = "needs_valid" if self.normalize else "safe"

    @classmethod
    def options_of(cls, cfg: Mapping[str, Any]) -> dict[str, Any]:
        options = super().options_of(cfg)
        if options["normalize"] is None:
            options["normalize"] = options["form"] == "detr"
        return options

    def embed(self, x: Tensor, grid: Grid) -> Tensor:
        return x + self.position_map(grid, x.device).to(x.dtype)

    def position_map(self, grid: Grid, device: torch.device | str | None = None) -> Tensor:
        """Return the embedding ``(B, H, W, C)``, float32; B is 1 without valid regions."""
        rows, columns = self._positions(grid, device)
        bands = torch.arange(self.embed_dims // 4, dtype=torch.float32, device=device)
        frequency = self.temperature ** (-bands / (self.embed_dims // 4))
        axes = (rows, columns) if self.axis_order == "yx" else (columns, rows)
        waves = []
        for axis in axes:
            angle = axis[..., None] * frequency  # (B, H, W, C / 4)
            waves.append(torch.stack((angle.sin(), angle.cos()), dim=-1))
        stacked = torch.stack(waves, dim=3)  # (B, H, W, axis, t, sin | cos)
        if self.form == "plain":
            order = (0, 1, 2, 3, 5, 4) if self.split_axes else (0, 1, 2, 5, 3, 4)
            stacked = stacked.permute(order)
        return stacked.flatten(3)

    def _positions(self, grid: Grid, device: torch.device | str | None) -> tuple[Tensor, Tensor]:
        """Row and column position of every token, each ``(B, H, W)``."""
        height, width = grid.q
        valid = (grid.q,) if grid.valid is None else tuple(grid.valid)
        sizes = constant(valid, torch.float32, device or torch.get_default_device())
        h, w = sizes[..., None, None].unbind(1)
        y = torch.arange(height, dtype=torch.float32, device=device)[None, :, None]
        x = torch.arange(width, dtype=torch.float32, device=device)[None, None, :]
        rows, columns = y.expand(len(valid), height, width), x.expand(len(valid), height, width)
        last_row, last_column = h - 1, w - 1
        if self.form == "detr":
            # DETR sums the mask up from 1: constant below the content, 0 beside it.
            rows, columns = (
                torch.minimum(rows + 1, h) * (x < w),
                torch.minimum(columns + 1, w) * (y < h),
            )
            last_row, last_column = h, w
        if self.normalize:
            rows = rows / (last_row + 1e-6) * self.scale
            columns = columns / (last_column + 1e-6) * self.scale
        return rows, columns
