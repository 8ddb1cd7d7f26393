"""DETR's encoder with a list of position encodings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any, ClassVar

from mmengine.registry import MODELS
from torch import Tensor, nn

from relpos_mm.encodings.arguments import require_counts, require_flags, require_rate
from relpos_mm.encodings.grid import Grid, Size

from .renamed_arguments import refuse_unknown
from .transformer_encoder import TransformerEncoder
from .transformer_layer import TokenFacts


@MODELS.register_module()
class RelPosDetrEncoder(TransformerEncoder):
    """Encoder of DETR whose position encoding is the list ``position``.

    Source: "End-to-End Object Detection with Transformers", section 3.2 and the released code. The
    published encoding is ``Sinusoid2d(form="detr", site="qk_input")``; iRPE adds
    ``ContextualRpe(rpe_on="k", ratio=2.0)`` and keeps the sines.

    Args:
        num_layers: Layers.
        embed_dims: Channels C.
        num_heads: Attention heads.
        feedforward_channels: Hidden width of the MLP.
        dropout: Of attention, its output, the MLP's hidden layer and its output.
        pre_norm: Normalise before attention and MLP, and once more at the end.
        position: One dict per encoding.
        grid_size: Nominal grid of absolute tables; 800 x 1333 px at stride 32 by default.
        window_size: Largest grid of tables of relative offsets, 1333 px both ways by default.
        with_cp: Recompute layers in the backward pass to save memory.
        init_cfg: See ``mmengine.model.BaseModule``.
        **unknown: Refused, each with the name that it has here.

    Raises:
        TypeError: An argument that does not exist here, such as mmdet's ``layer_cfg``.
        ValueError: Sizes that no encoder can have, or an encoding that does not exist.
    """

    usual_slug: ClassVar[str] = "sin2d"

    def __init__(
        self,
        num_layers: int = 6,
        embed_dims: int = 256,
        num_heads: int = 8,
        feedforward_channels: int = 2048,
        dropout: float = 0.1,
        pre_norm: bool = False,
        position: Sequence[Mapping[str, Any]] = (),
        grid_size: int | Size = (25, 42),
        window_size: int | Size = (42, 42),
        with_cp: bool = False,
        init_cfg: Mapping[str, Any] | None = None,
        **unknown: Any,
    ) -> None:
        known = set(signature(RelPosDetrEncoder).parameters) - {"unknown"}
        refuse_unknown("RelPosDetrEncoder", unknown, known)
        require_flags(RelPosDetrEncoder, locals())
        require_counts("RelPosDetrEncoder", num_layers=num_layers)
        require_rate("RelPosDetrEncoder", dropout=dropout)
        super().__init__(
            embed_dims,
            num_heads,
            drop_paths=[0.0] * num_layers,
            position=position,
            grid_size=grid_size,
            window_size=window_size,
            init_cfg=init_cfg,
            feedforward_channels=feedforward_channels,
            act="ReLU",
            attn_drop=dropout,
            drop=dropout,
            pre_norm=pre_norm,
            with_cp=with_cp,
        )
        self.norm = nn.LayerNorm(embed_dims) if pre_norm else None
        for layer in self.layers:  # as torch's own multi-head attention starts
            nn.init.zeros_(layer.attn.qkv.bias)
            nn.init.zeros_(layer.attn.proj.bias)

    def forward(
        self,
        x: Tensor,
        grid: Grid,
        query_pos: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """Encode a map.

        Args:
            x: Tokens ``(B, H * W, C)``, row by row.
            grid: Their grid; with ``valid`` where images are padded, which encodings that count
                from an image's own border need.
            query_pos: What :meth:`query_pos` returns; computed here when it is not given.
            key_padding_mask: ``(B, H * W)`` bool, True = hidden.

        Returns:
            ``(B, H * W, C)``.

        Raises:
            ValueError: No grid, or one that does not fit the tokens.
        """
        if not isinstance(grid, Grid):
            raise ValueError(
                "RelPosDetrEncoder: no grid was given; pass Grid((H, W)) of the feature map, the "
                f"layout of {x.shape[1]} tokens is never guessed"
            )
        if query_pos is None:
            query_pos = self.query_pos(x, grid)
        x = self.run(x, TokenFacts(grid, query_pos, key_padding_mask))
        return x if self.norm is None else self.norm(x)
