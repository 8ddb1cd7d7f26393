"""Plain Vision Transformer classifier backbone with a list of position encodings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any, ClassVar

import torch
from mmengine.registry import MODELS
from torch import Tensor, nn

from relpos_mm.encodings.arguments import (
    require_counts,
    require_flags,
    require_positive,
    require_rate,
)
from relpos_mm.encodings.grid import Grid, Size, as_size

from .mmcv_parts import PatchEmbed
from .renamed_arguments import refuse_unknown
from .start import start_linears
from .transformer_encoder import TransformerEncoder
from .transformer_layer import TokenFacts


@MODELS.register_module()
class RelPosViT(TransformerEncoder):
    """ViT of DeiT's shapes whose position encoding is the list ``position``.

    Source: "Training data-efficient image transformers", Table 1, and the code behind it. The class
    token is a prefix token: encodings of the grid leave it alone, unless they ask for it
    (``AbsoluteTable`` has a vector for it, ``ContextualRpe(skip=1)`` a bucket). The published
    encoding is ``AbsoluteTable``; iRPE keeps it.

    Args:
        embed_dims: Channels C; DeiT-S has 384.
        depth: Layers.
        num_heads: Attention heads.
        mlp_ratio: Hidden width of the MLP over the channels.
        position: One dict per encoding; sites as in
            :class:`~relpos_mm.models.transformer_encoder.TransformerEncoder`.
        pretrain_img_size: Picture size of pre-training: the grid of absolute tables and the largest
            offset of relative ones. Absolute tables are resized to inputs of other sizes.
        drop_path_rate: Stochastic depth of the last layer; grows linearly from 0.
        with_cp: Recompute layers in the backward pass to save memory.
        in_channels: Channels of the picture.
        patch_size: Side of a patch in pixels.
        qkv_bias: Whether q, k and v have a bias.
        init_cfg: See ``mmengine.model.BaseModule``.
        **unknown: Refused, each with the name that it has here.

    Raises:
        TypeError: An argument that does not exist here.
        ValueError: Sizes that no ViT can have, or an encoding that does not exist.
    """

    usual_slug: ClassVar[str] = "abs"

    def __init__(
        self,
        embed_dims: int = 384,
        depth: int = 12,
        num_heads: int = 6,
        mlp_ratio: float = 4.0,
        position: Sequence[Mapping[str, Any]] = ({"type": "AbsoluteTable"},),
        pretrain_img_size: int | Size = 224,
        drop_path_rate: float = 0.0,
        with_cp: bool = False,
        in_channels: int = 3,
        patch_size: int = 16,
        qkv_bias: bool = True,
        init_cfg: Mapping[str, Any] | None = None,
        **unknown: Any,
    ) -> None:
        refuse_unknown("RelPosViT", unknown, set(signature(RelPosViT).parameters) - {"unknown"})
        require_flags(RelPosViT, locals())
        height, width = as_size("RelPosViT: pretrain_img_size", pretrain_img_size)
        require_counts(
            "RelPosViT",
            embed_dims=embed_dims,
            depth=depth,
            in_channels=in_channels,
            patch_size=patch_size,
        )
        require_positive("RelPosViT", mlp_ratio=mlp_ratio)
        require_rate("RelPosViT", drop_path_rate=drop_path_rate)
        grid = (-(-height // patch_size), -(-width // patch_size))
        super().__init__(
            embed_dims,
            num_heads,
            drop_paths=torch.linspace(0, drop_path_rate, depth, device="cpu").tolist(),
            position=position,
            grid_size=grid,
            window_size=grid,
            prefix_tokens=1,
            init_cfg=init_cfg,
            feedforward_channels=int(embed_dims * mlp_ratio),
            act="GELU",
            norm_eps=1e-6,
            pre_norm=True,
            qkv_bias=qkv_bias,
            with_cp=with_cp,
        )
        self.patch_embed = PatchEmbed(
            in_channels=in_channels,
            embed_dims=embed_dims,
            kernel_size=patch_size,
            stride=patch_size,
        )
        self.cls_token = nn.Parameter(torch.zeros(1, 1, embed_dims))
        self.norm = nn.LayerNorm(embed_dims, eps=1e-6)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        start_linears(self)

    def forward(self, x: Tensor) -> tuple[Tensor]:
        """``(B, 3, H, W)`` -> the class token ``(B, C)``, for mmpretrain's heads.

        A picture that is no multiple of the patch is padded at the bottom and right.
        """
        tokens, size = self.patch_embed(x)
        tokens = torch.cat((self.cls_token.expand(len(tokens), -1, -1), tokens), dim=1)
        grid = Grid(size, prefix=1)
        facts = TokenFacts(grid, self.query_pos(tokens, grid))
        return (self.norm(self.run(tokens, facts))[:, 0],)
