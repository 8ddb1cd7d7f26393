"""Linear penalty on the Euclidean distance (ALiBi in two dimensions)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from relpos_mm.registry import POSITIONS

from .arguments import require_counts
from .base import PositionEncoding
from .distances import distances, geometric_slopes, offset_distances
from .grid import Grid
from .made_once import constant


@POSITIONS.register_module()
class Alibi2d(PositionEncoding):
    """``softmax(q k^T / sqrt(d) - m_h |p_q - p_k|)`` with a fixed slope per head.

    Source: ALiBi ("Train Short, Test Long", section 3) in CROMA's 2-D form. Slopes are ALiBi's: the
    powers of ``2^(-8 / h)``, and its public mixture where h is no power of two. Scale rule: added
    after scaling. The distance is Euclidean, so neither sign nor axis order matters; it counts in
    units of ``Grid.step``. No parameters; recomputed in float32 for every size.

    Args:
        num_heads: Attention heads h.
    """

    slug: ClassVar[str] = "alibi"

    def __init__(self, *, num_heads: int) -> None:
        super().__init__()
        require_counts("Alibi2d", num_heads=num_heads)
        self.slopes = tuple(geometric_slopes(num_heads))

    def bias(self, q: Tensor, k: Tensor, grid: Grid, scale: float) -> Tensor:
        return (-self._slopes(q.device) * distances(grid, q.device)).unsqueeze(0)  # (1, h, Nq, Nk)

    def offset_table(self, grid: Grid, device: torch.device) -> Tensor | None:
        table = offset_distances(grid, device)
        return None if table is None else -self._slopes(device) * table

    def _slopes(self, device: torch.device) -> Tensor:
        return constant(self.slopes, torch.float32, device)[:, None, None]

    def extra_repr(self) -> str:
        return f"num_heads={len(self.slopes)}"
