"""Dynamic position bias: a small network computes the bias of an offset (CrossFormer)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from relpos_mm.registry import POSITIONS

from .arguments import require_counts
from .base import PositionEncoding
from .grid import Grid
from .offsets import as_table, gather_bias, offset_set
from .precision import call_wide


@POSITIONS.register_module()
class DynamicBias(PositionEncoding):
    """``softmax(q k^T / sqrt(d) + B)`` with ``B[q, k] = f(dy, dx)`` in one number per head.

    ``f`` is Linear(2, p), then three times LayerNorm, ReLU, Linear: p to p, p to p, p to heads; the
    residual form adds the input of the first two. Parameter names are the public ones (``pos_proj
    pos1 pos2 pos3``). Linear weights start from a truncated normal of 0.02, biases from 0, so B
    starts near 0.

    Source: CrossFormer, section 3.3. The paper's width is p = C / 4; the released code passes C / 4
    to a class that divides by 4 again, so every released model has p = C / 16, the default here.
    Residual is off in every released model.

    Scale rule: B is added after scaling. Sign rule: offsets are query minus key, rows first, in
    tokens of the grid whatever its step, as in the released long-distance attention.

    Any grid works without a change to the checkpoint, but the first LayerNorm removes the length of
    the offset: along a ray the bias tends to a constant, far offsets differ by direction only.

    Args:
        embed_dims: Channels C, sets the hidden width.
        num_heads: Attention heads h.
        hidden: ``code`` is C / 16 (4 below 32 channels, where the norm would erase a width of 1),
            ``paper`` is C / 4, a number is taken as it is.
        residual: Add the input of the two middle blocks to their output.
        use_step: Count offsets in units of ``Grid.step`` instead of tokens.

    Raises:
        ValueError: ``hidden`` is neither a known word nor a number of at least 1.
    """

    slug: ClassVar[str] = "dpb"
    free: ClassVar[frozenset[str]] = frozenset({"hidden"})

    def __init__(
        self,
        *,
        embed_dims: int,
        num_heads: int,
        hidden: Literal["code", "paper"] | int = "code",
        residual: bool = False,
        use_step: bool = False,
    ) -> None:
        super().__init__()
        require_counts("DynamicBias", embed_dims=embed_dims, num_heads=num_heads)
        self.residual = residual
        self.use_step = use_step
        width = _hidden_width(hidden, embed_dims)
        self.pos_proj = nn.Linear(2, width)
        self.pos1 = _block(width, width)
        self.pos2 = _block(width, width)
        self.pos3 = _block(width, num_heads)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, offsets: Tensor) -> Tensor:
        """Return the bias ``(P, h)`` of offsets ``(P, 2)``, query minus key, rows first."""
        x = self.pos_proj(offsets)
        for block in (self.pos1, self.pos2):
            x = x + block(x) if self.residual else block(x)
        return self.pos3(x)

    def bias(self, q: Tensor, k: Tensor, grid: Grid, scale: float) -> Tensor:
        return gather_bias(*self._by_offset(grid))

    def offset_table(self, grid: Grid, device: torch.device) -> Tensor | None:
        return as_table(self._by_offset(grid)[0], grid)

    def _by_offset(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """Bias ``(P, h)`` of the distinct offsets, and the offset of each pair."""
        step = grid.step if self.use_step else (1.0, 1.0)
        offsets, index = offset_set(grid.q, grid.k, step, self.pos_proj.weight.device)
        return call_wide(self, offsets), index

    def no_decay(self) -> tuple[str, ...]:
        """Norms and biases alone, as the released classification recipe decays the matrices.

        The released UperNet recipe decays the norms and biases too.
        """
        return tuple(name for name, parameter in self.named_parameters() if parameter.ndim == 1)

    def extra_repr(self) -> str:
        return f"residual={self.residual}, use_step={self.use_step}"


def _block(width: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, out))


def _hidden_width(hidden: Literal["code", "paper"] | int, embed_dims: int) -> int:
    if hidden == "paper":
        return max(embed_dims // 4, 1)
    if hidden == "code":
        return embed_dims // 16 if embed_dims >= 32 else 4
    if not isinstance(hidden, int) or hidden < 1:
        raise ValueError(f"DynamicBias: hidden must be 'code', 'paper' or at least 1, got {hidden}")
    return hidden
