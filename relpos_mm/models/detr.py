"""mmdet's DETR around :class:`~relpos_mm.models.detr_encoder.RelPosDetrEncoder`.

Importing this module imports mmdet; its configs name it in ``custom_imports``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from mmdet.models.detectors import DETR
from mmdet.models.layers import DetrTransformerDecoder
from mmengine.registry import MODELS
from torch import Tensor, nn

from relpos_mm.encodings.base import position_modules
from relpos_mm.encodings.grid import Grid, Size

from .detr_encoder import RelPosDetrEncoder


@MODELS.register_module()
class RelPosDETR(DETR):
    """DETR whose encoder takes a list of position encodings.

    Everything but the encoder is mmdet's. Grid, valid regions and padding mask reach the encoder
    whether images are padded or not. The map of the encoder's ``qk_input`` encodings also locates
    the keys of the decoder's cross-attention, as in the released code; without any the decoder's
    keys carry no position.

    Encodings act in the encoder alone: object queries have no place on a grid, so there is no
    offset between them and keys.

    Raises:
        ValueError: ``positional_encoding`` is given beside ``encoder.position``, or an encoding is
            asked for in the decoder.
    """

    usual_slug: ClassVar[str] = RelPosDetrEncoder.usual_slug
    encoder: Any  # configs until `_init_layers` has built them
    decoder: Any

    def _init_layers(self) -> None:
        if self.positional_encoding is not None:
            raise ValueError(
                "RelPosDETR: positional_encoding would stand beside encoder.position; set it to "
                "None and put dict(type='Sinusoid2d', form='detr', site='qk_input') in the list"
            )
        _refuse_positions(self.decoder, "decoder")
        self.encoder = RelPosDetrEncoder(**self.encoder)
        self.decoder = DetrTransformerDecoder(**self.decoder)
        self.embed_dims = self.encoder.embed_dims
        self.query_embedding = nn.Embedding(self.num_queries, self.embed_dims)

    def init_weights(self) -> None:
        """Initialise as mmdet does, but leave encodings at the values that they chose.

        mmdet draws every parameter of encoder and decoder with two or more axes from Xavier's
        range, iRPE's tables too if they let it; their ``init`` decides here.
        """
        super(DETR, self).init_weights()
        own = {p for found in position_modules(self).values() for p in found.parameters()}
        for coder in (self.encoder, self.decoder):
            for parameter in coder.parameters():
                if parameter.dim() > 1 and parameter not in own:
                    nn.init.xavier_uniform_(parameter)

    def pre_transformer(
        self, img_feats: tuple[Tensor, ...], batch_data_samples: Sequence[Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Tokens, grid and masks of the last feature map ``(B, C, H, W)``."""
        feat = img_feats[-1]
        size = (feat.shape[2], feat.shape[3])
        if not batch_data_samples:
            raise ValueError("RelPosDETR: data samples are needed, they hold the pictures' sizes")
        valid, mask = valid_tokens(
            batch_data_samples[0].batch_input_shape,
            [sample.img_shape[:2] for sample in batch_data_samples],
            size,
        )
        grid = Grid(size, valid=valid)
        tokens = feat.flatten(2).transpose(1, 2)
        mask = None if mask is None else mask.to(feat.device)
        pos = self.encoder.query_pos(tokens, grid)
        encoder_inputs = {"feat": tokens, "feat_mask": mask, "feat_pos": pos, "grid": grid}
        memory_pos = torch.zeros_like(tokens) if pos is None else pos
        return encoder_inputs, {"memory_mask": mask, "memory_pos": memory_pos}

    def forward_encoder(
        self, feat: Tensor, feat_mask: Tensor | None, feat_pos: Tensor | None, grid: Grid
    ) -> dict[str, Tensor]:
        """Encode ``(B, H * W, C)``; returns it as ``memory``."""
        return {"memory": self.encoder(feat, grid, feat_pos, feat_mask)}


def valid_tokens(
    canvas: Size, pictures: Sequence[Size], size: Size
) -> tuple[list[Size] | None, Tensor | None]:
    """Real content of each picture in tokens, and the mask of the rest.

    A token is content when its first pixel is, counted in steps of canvas over map, as in the
    released code: where a picture is no multiple of the stride, its last row or column of tokens
    sees padding, and one more may count than if the picture came alone.

    Args:
        canvas: Padded size ``(H, W)`` of the batch in pixels.
        pictures: Size of each picture in pixels.
        size: Size of the feature map.

    Returns:
        ``((h, w) of each picture, mask (B, H * W) with True outside)``, both None when no picture
        is padded.
    """
    if all(tuple(picture) == tuple(canvas) for picture in pictures):
        return None, None
    axes = []
    for axis in (0, 1):
        pixels = torch.arange(canvas[axis])
        inside = torch.stack([pixels < picture[axis] for picture in pictures]).float()
        axes.append(F.interpolate(inside[:, None], size=size[axis])[:, 0].bool())
    rows, columns = axes
    mask = ~(rows[:, :, None] & columns[:, None, :]).flatten(1)
    counts = zip(rows.sum(1).tolist(), columns.sum(1).tolist(), strict=True)
    return list(counts), mask


def _refuse_positions(node: Any, path: str) -> None:
    """Refuse a ``position`` list anywhere in the decoder's config."""
    if not isinstance(node, Mapping):
        return
    for key, child in node.items():
        if key == "position":
            raise ValueError(
                f"RelPosDETR: {path}.position: object queries have no place on the grid, so their "
                "cross-attention and self-attention have no offsets to encode; put encodings in "
                "encoder.position"
            )
        _refuse_positions(child, f"{path}.{key}")
