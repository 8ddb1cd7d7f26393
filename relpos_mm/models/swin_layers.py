"""Swin's block, patch merging and stage, all on maps ``(B, H, W, C)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint as cp
from mmcv.cnn.bricks import DropPath
from mmengine.model import BaseModule, ModuleList
from torch import Tensor, nn

from relpos_mm.encodings.grid import Grid, Size
from relpos_mm.registry import build_positions, site_of

from .mmcv_parts import FFN
from .pieces import in_pieces
from .window_attention import SmallMap, WindowAttention
from .windows import WindowPlan


class SwinBlock(BaseModule):
    """Pre-norm window attention and MLP, each with stochastic depth.

    Source: Swin Transformer, section 3.2, equation 3.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        window_size: Size,
        *,
        mlp_ratio: float,
        drop_path: float,
        with_cp: bool,
        **attention: Any,
    ) -> None:
        super().__init__()
        self.with_cp = with_cp
        self.norm1 = nn.LayerNorm(embed_dims)
        self.attn = WindowAttention(embed_dims, num_heads, window_size, **attention)
        self.drop_path = DropPath(drop_path)
        self.norm2 = nn.LayerNorm(embed_dims)
        self.ffn = FFN(
            embed_dims,
            feedforward_channels=int(embed_dims * mlp_ratio),
            act_cfg={"type": "GELU"},
            add_identity=False,
        )

    def forward(self, x: Tensor, grid: Grid, plan: WindowPlan | None = None) -> Tensor:
        """``(B, H, W, C)`` in and out; ``plan`` as for the attention."""
        if self.with_cp and torch.is_grad_enabled():
            return cp.checkpoint(self._forward, x, grid, plan, use_reentrant=False)
        return self._forward(x, grid, plan)

    def _forward(self, x: Tensor, grid: Grid, plan: WindowPlan | None) -> Tensor:
        for encoding in self.attn.encodings:
            if encoding.site == "block":
                x = encoding.embed(x, grid)
        x = add_branch(x, self.attn(self.norm1(x), grid, plan), self.drop_path)
        branch = in_pieces(lambda tokens: self.ffn(self.norm2(tokens)), x)
        return add_branch(x, branch, self.drop_path)


def add_branch(x: Tensor, branch: Tensor, drop_path: DropPath) -> Tensor:
    """``x + drop_path(branch)`` in one pass over memory instead of three."""
    if not (drop_path.training and drop_path.drop_prob):
        return x + branch
    if x.dtype != branch.dtype:  # under autocast the branch is narrower
        return x + drop_path(branch)
    keep = 1 - drop_path.drop_prob
    drawn = torch.rand((len(x), *(1,) * (x.ndim - 1)), dtype=x.dtype, device=x.device)
    return torch.addcmul(x, branch, (keep + drawn).floor() / keep)


class PatchMerging(BaseModule):
    """Halve a map: the four neighbours' channels side by side, norm, linear 4C -> 2C.

    Neighbours are whole channel blocks in the order (row, column) = (0, 0), (1, 0), (0, 1), (1, 1),
    as in the official code (the OpenMMLab libraries interleave them). An odd map is padded with
    zeros at the bottom and right.
    """

    def __init__(self, embed_dims: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * embed_dims)
        self.reduction = nn.Linear(4 * embed_dims, 2 * embed_dims, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """``(B, H, W, C) -> (B, ceil(H / 2), ceil(W / 2), 2 C)``."""
        height, width = x.shape[1:3]
        # A compiler would make one graph for each way in which the maps can be odd.
        if torch.compiler.is_dynamo_compiling() or height % 2 or width % 2:
            x = F.pad(x, (0, 0, 0, width % 2, 0, height % 2))
        corners = ((0, 0), (1, 0), (0, 1), (1, 1))
        x = torch.cat([x[:, row::2, column::2] for row, column in corners], dim=-1)
        return self.reduction(self.norm(x))


class SwinStage(BaseModule):
    """Blocks of one resolution, then patch merging except in the last stage.

    Args:
        embed_dims: Channels of the stage.
        drop_paths: Stochastic depth rate of each block; its length is the depth.
        merge: Whether patch merging follows.
        position: The ``stage``, ``block`` and ``qk_input`` encodings as config dicts.
        context: ``layer`` (index of the first block), ``depth`` (blocks of the model) and
            ``grid_size`` (pre-training grid of the stage).
        **block: See :class:`SwinBlock` and
            :class:`~relpos_mm.models.window_attention.WindowAttention`.
    """

    def __init__(
        self,
        embed_dims: int,
        *,
        drop_paths: Sequence[float],
        merge: bool,
        context: Mapping[str, Any],
        small_map: SmallMap,
        position: Sequence[Mapping[str, Any]],
        **block: Any,
    ) -> None:
        super().__init__()
        of_stage = [cfg for cfg in position if site_of(cfg) == "stage"]
        in_blocks = [cfg for cfg in position if site_of(cfg) != "stage"]
        encodings = build_positions(of_stage, embed_dims=embed_dims, **context)
        self.position = nn.ModuleDict({encoding.name: encoding for encoding in encodings})
        self.blocks = ModuleList(
            SwinBlock(
                embed_dims,
                shifted=j % 2 == 1,
                drop_path=drop_path,
                small_map=small_map,
                position=in_blocks,
                context={**context, "layer": context["layer"] + j},
                **block,
            )
            for j, drop_path in enumerate(drop_paths)
        )
        self.downsample = PatchMerging(embed_dims) if merge else None

    def plans(self, grid: Grid, device: torch.device) -> list[WindowPlan]:
        """Plans of the blocks without and, from the second block on, with shifted windows."""
        return [block.attn.plan(grid.q, device) for block in self.blocks[:2]]

    def forward(self, x: Tensor, grid: Grid, plans: Sequence[WindowPlan] | None = None) -> Tensor:
        """Run the blocks; the map keeps its size (merging is the backbone's next step).

        A compiled stage takes its :meth:`plans` as an input, because it cannot look them up.
        """
        plans = self.plans(grid, x.device) if plans is None else plans
        for j, block in enumerate(self.blocks):
            x = block(x, grid, plans[j % 2])
            if j == 0:
                for encoding in self.position.values():
                    x = encoding.embed(x, grid)  # type: ignore[operator]
        return x
