"""Swin Transformer with a list of pluggable position encodings, for mmdet, mmseg and mmpretrain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from inspect import signature
from numbers import Integral
from typing import Any

import torch
from mmengine.model import BaseModule, ModuleList
from mmengine.registry import MODELS
from torch import Tensor, nn

from relpos_mm.encodings.arguments import (
    require_counts,
    require_flags,
    require_positive,
    require_rate,
)
from relpos_mm.encodings.grid import Grid, Size, as_size, pair_of_counts
from relpos_mm.encodings.valid_region import zero_padding
from relpos_mm.registry import build_positions, position_list, site_of

from .alignment import warn_if_stretched
from .mmcv_parts import PatchEmbed
from .renamed_arguments import refuse_unknown
from .start import start_linears
from .swin_layers import SwinStage
from .window_attention import SmallMap, window_geometry


@MODELS.register_module()
class RelPosSwin(BaseModule):
    """Swin backbone whose position encoding is the list ``position``.

    Source: Swin Transformer, section 3; architecture and initial values of the official code
    (linear weights, tables and embeddings truncated normal 0.02, biases 0, norms 1 and 0, patch
    convolution as torch has it).

    Args:
        embed_dims: Channels of the first stage; doubled by every stage.
        depths: Blocks per stage.
        num_heads: Heads per stage.
        window_size: Window ``(Wh, Ww)``, or one number for both.
        mlp_ratio: Hidden width of the MLP over the channels.
        position: One dict per encoding (``type`` plus arguments); ``[]`` is none. Encodings of site
            ``stem`` act once after the patch embedding, of site ``stage`` once per stage after its
            first block; every block has its own instance of the others.
        pretrain_img_size: Picture size ``(H, W)`` of pre-training: the grid of absolute tables and,
            under ``shrink``, the window of small stages. Inputs may have any size.
        drop_path_rate: Stochastic depth of the last block; grows linearly from 0.
        out_indices: Stages to return, each through its own LayerNorm ``norm{i}``.
        small_map: ``pad`` is the dense rule (always full, shifted windows), ``shrink`` the
            classification rule (a map not larger than the window is one unshifted window).
        frozen_stages: -1 freezes nothing, 0 the patch embedding and stem encodings, i also the
            first i stages and their output norms.
        with_cp: Recompute blocks in the backward pass to save memory.
        mask_padding: Hide padding tokens from attention, see ``forward``; the published models let
            them take part.
        in_channels: Channels of the picture.
        patch_size: Side of a patch in pixels.
        qkv_bias: Whether q, k and v have a bias.
        init_cfg: See ``mmengine.model.BaseModule``.
        **unknown: Refused, each with the name that it has here.

    Warns:
        InterpolatedEmbeddingWarning: An absolute embedding leaves step with the windows.

    Raises:
        TypeError: An argument that does not exist here, such as another code base's name.
        ValueError: Arguments that contradict each other, or an encoding that does not exist.
    """

    def __init__(
        self,
        embed_dims: int = 96,
        depths: Sequence[int] = (2, 2, 6, 2),
        num_heads: Sequence[int] = (3, 6, 12, 24),
        window_size: int | Size = (7, 7),
        mlp_ratio: float = 4.0,
        position: Sequence[Mapping[str, Any]] = ({"type": "RelativeBias"},),
        pretrain_img_size: int | Size = 224,
        drop_path_rate: float = 0.2,
        out_indices: Sequence[int] = (0, 1, 2, 3),
        small_map: SmallMap = "pad",
        frozen_stages: int = -1,
        with_cp: bool = False,
        mask_padding: bool = False,
        in_channels: int = 3,
        patch_size: int = 4,
        qkv_bias: bool = True,
        init_cfg: Mapping[str, Any] | None = None,
        **unknown: Any,
    ) -> None:
        refuse_unknown("RelPosSwin", unknown, set(signature(RelPosSwin).parameters) - {"unknown"})
        require_flags(RelPosSwin, locals())
        super().__init__(init_cfg=init_cfg)
        window = as_size("RelPosSwin: window_size", window_size)
        img_size = as_size("RelPosSwin: pretrain_img_size", pretrain_img_size)
        require_counts(
            "RelPosSwin", embed_dims=embed_dims, in_channels=in_channels, patch_size=patch_size
        )
        require_positive("RelPosSwin", mlp_ratio=mlp_ratio)
        require_rate("RelPosSwin", drop_path_rate=drop_path_rate)
        _check_lists(depths, num_heads, out_indices)
        _check(embed_dims, depths, num_heads, out_indices, small_map, frozen_stages)
        self.position_cfg = position_list("RelPosSwin", position)
        self.small_map = small_map
        self.frozen_stages = frozen_stages
        self.out_indices = tuple(out_indices)
        self.num_features = [embed_dims * 2**i for i in range(len(depths))]
        self.patch_size = patch_size

        self.patch_embed = PatchEmbed(
            in_channels=in_channels,
            embed_dims=embed_dims,
            kernel_size=patch_size,
            stride=patch_size,
            norm_cfg={"type": "LN"},
        )
        grid = (-(-img_size[0] // patch_size), -(-img_size[1] // patch_size))
        stem = [cfg for cfg in self.position_cfg if site_of(cfg) == "stem"]
        in_blocks = [cfg for cfg in self.position_cfg if site_of(cfg) != "stem"]
        encodings = build_positions(stem, embed_dims=embed_dims, grid_size=grid, window_size=window)
        self.position = nn.ModuleDict({encoding.name: encoding for encoding in encodings})

        # Stages behind the last output would own parameters that never receive a gradient.
        last = max(self.out_indices)
        drop_paths = torch.linspace(0, drop_path_rate, sum(depths), device="cpu").tolist()
        self.stages = ModuleList()
        for i, depth in enumerate(depths[: last + 1]):
            first = sum(depths[:i])
            self.stages.append(
                SwinStage(
                    self.num_features[i],
                    num_heads=num_heads[i],
                    window_size=window_geometry(grid, window, False, small_map)[0],
                    mlp_ratio=mlp_ratio,
                    drop_paths=drop_paths[first : first + depth],
                    merge=i < last,
                    position=in_blocks,
                    context={"layer": first, "depth": sum(depths), "grid_size": grid},
                    small_map=small_map,
                    qkv_bias=qkv_bias,
                    mask_padding=mask_padding,
                    with_cp=with_cp,
                )
            )
            grid = (-(-grid[0] // 2), -(-grid[1] // 2))
        for i in self.out_indices:
            self.add_module(f"norm{i}", nn.LayerNorm(self.num_features[i]))
        start_linears(self)
        self._freeze()
        warn_if_stretched(self)

    def forward(
        self, x: Tensor, pictures: Sequence[Sequence[int]] | None = None
    ) -> tuple[Tensor, ...]:
        """``(B, 3, H, W)`` -> one ``(B, C_i, ceil(H / s_i), ceil(W / s_i))`` per ``out_indices``.

        Strides s are 4, 8, 16, 32; any picture of at least one pixel is padded to whole patches.

        Args:
            x: Pictures, smaller ones padded with zeros at the bottom and right.
            pictures: Real size ``(h, w)`` of each in pixels, for encodings that need the valid
                region (``padding = "needs_valid"``). Maps are then zero outside of it, and with
                ``mask_padding`` a picture's result is the one that it has alone.

        Raises:
            ValueError: Sizes that do not belong to the batch, or ``small_map="shrink"``, whose
                windows follow the size of the padded map.
        """
        valid = None if pictures is None else self._valid(x, pictures)
        x, size = self.patch_embed(x)
        x = x.view(x.shape[0], *size, x.shape[-1])  # (B, H * W, C) -> (B, H, W, C)
        grid = Grid(size, valid=valid)
        for encoding in self.position.values():
            x = encoding.embed(x, grid)  # type: ignore[operator]
        outputs = []
        for i, stage in enumerate(self.stages):
            x = zero_padding(stage(x, grid, stage.plans(grid, x.device)), grid)
            if i in self.out_indices:
                out = zero_padding(getattr(self, f"norm{i}")(x), grid)
                outputs.append(out.permute(0, 3, 1, 2).contiguous())
            if stage.downsample is not None:
                x = stage.downsample(x)
                grid = halved(grid)
        return tuple(outputs)

    def _valid(self, x: Tensor, pictures: Sequence[Sequence[int]]) -> list[Size] | None:
        """Real content of each picture in tokens of the stem; None when none is padded."""
        if self.small_map == "shrink":
            raise ValueError(
                "RelPosSwin: pictures: under small_map='shrink' windows follow the size of the "
                "padded map; use small_map='pad' for padded batches"
            )
        canvas = tuple(x.shape[2:])
        try:
            sizes = [pair_of_counts(size, "pictures") for size in pictures]
        except (TypeError, ValueError):  # no list, or no pairs of whole numbers
            sizes = []
        fits = (h <= canvas[0] and w <= canvas[1] for h, w in sizes)
        if len(sizes) != len(x) or not all(fits):
            raise ValueError(
                f"RelPosSwin: pictures of {pictures!r} px do not belong to a batch of {len(x)} on "
                f"{canvas[0]} x {canvas[1]} px"
            )
        if all(size == canvas for size in sizes):
            return None
        patch = self.patch_size
        return [(-(-h // patch), -(-w // patch)) for h, w in sizes]

    def train(self, mode: bool = True) -> RelPosSwin:
        """Set the mode; frozen parts stay in evaluation mode."""
        super().train(mode)
        for module in self._frozen_modules():
            module.eval()
        return self

    def compile(self, **options: Any) -> None:
        """Compile every stage in place, for maps of any size unless ``dynamic=False``.

        Stage by stage, because there the size of a map is a symbol of its own. In one graph of the
        whole it is an expression of the picture's size, nested deeper with every stage, over which
        the compiler ponders for minutes.

        Args:
            **options: Of ``torch.compile``.
        """
        for stage in self.stages:
            # Stages share their code; each shall have its own share of recompilations.
            stage.compile(**{"dynamic": True, "isolate_recompiles": True, **options})

    def _frozen_modules(self) -> list[nn.Module]:
        if self.frozen_stages < 0:
            return []
        norms = [f"norm{i}" for i in self.out_indices if i < self.frozen_stages]
        return [
            self.patch_embed,
            self.position,
            *self.stages[: self.frozen_stages],
            *(getattr(self, name) for name in norms),
        ]

    def _freeze(self) -> None:
        for module in self._frozen_modules():
            module.requires_grad_(False).eval()


def halved(grid: Grid) -> Grid:
    """Grid of a map behind patch merging, which rounds up."""
    height, width = grid.q
    valid = grid.valid and [(-(-h // 2), -(-w // 2)) for h, w in grid.valid]
    return Grid((-(-height // 2), -(-width // 2)), valid=valid)


def _check_lists(
    depths: Sequence[int], num_heads: Sequence[int], out_indices: Sequence[int]
) -> None:
    """Refuse what is no list, and numbers that no stage can have."""
    for name, values, lowest in (
        ("depths", depths, 1),
        ("num_heads", num_heads, 1),
        ("out_indices", out_indices, -math.inf),
    ):
        numbers = values if isinstance(values, Sequence) and not isinstance(values, str) else ()
        fits = all(isinstance(value, Integral) and value >= lowest for value in numbers)
        if numbers is not values or not fits:
            which = "stage numbers"
            if lowest == 1:
                which = "whole numbers, one per stage, each at least 1"
            raise ValueError(f"RelPosSwin: {name} must be a list of {which}, got {values!r}")


def _check(
    embed_dims: int,
    depths: Sequence[int],
    num_heads: Sequence[int],
    out_indices: Sequence[int],
    small_map: str,
    frozen_stages: int,
) -> None:
    """Refuse contradicting arguments in one sentence each."""
    stages = len(depths)
    if len(num_heads) != stages:
        raise ValueError(f"RelPosSwin: depths {depths} and num_heads {num_heads} differ in length")
    for i, heads in enumerate(num_heads):
        if embed_dims * 2**i % heads:
            raise ValueError(
                f"RelPosSwin: stage {i} has {embed_dims * 2**i} channels, which "
                f"num_heads={heads} does not divide"
            )
    if small_map not in ("pad", "shrink"):
        raise ValueError(f"RelPosSwin: small_map must be 'pad' or 'shrink', got {small_map!r}")
    if not out_indices or sorted(set(out_indices)) != list(out_indices):
        raise ValueError(f"RelPosSwin: out_indices must rise without repeats, got {out_indices}")
    if not 0 <= min(out_indices) <= max(out_indices) < stages:
        raise ValueError(f"RelPosSwin: out_indices {out_indices} of {stages} stages")
    if not isinstance(frozen_stages, Integral) or not -1 <= frozen_stages <= stages:
        raise ValueError(f"RelPosSwin: frozen_stages must be -1 to {stages}, got {frozen_stages}")
