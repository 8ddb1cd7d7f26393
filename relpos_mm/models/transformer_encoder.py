"""A stack of transformer layers and the list of encodings that acts on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from mmengine.model import BaseModule, ModuleList
from torch import Tensor, nn

from relpos_mm.encodings.arguments import head_width, require_counts
from relpos_mm.encodings.grid import Grid, Size, as_size
from relpos_mm.registry import build_positions, position_list, site_of

from .transformer_layer import TokenFacts, TransformerLayer, embed_tokens, encodings_of


class TransformerEncoder(BaseModule):
    """Layers on one global grid with the encodings of ``position`` at their sites.

    ``stem`` encodings act once on the input, ``stage`` encodings once behind the first layer, and
    ``block`` encodings in every layer, each with an instance of its own. ``qk_input`` encodings are
    one instance for all layers, as in DETR: their map is computed once per input and added to the
    input of q and k in every layer, so it must not depend on the content.

    Args:
        embed_dims: Channels C.
        num_heads: Attention heads.
        drop_paths: Stochastic depth rate of each layer; its length is the depth.
        position: One dict per encoding (``type`` plus arguments); ``[]`` is none.
        grid_size: Nominal grid ``(H, W)``: the shape of absolute tables. Inputs may have any size.
        window_size: Largest grid: the size of tables of relative offsets.
        feedforward_channels: Hidden width of the MLP.
        prefix_tokens: Tokens before the grid.
        **layer: See :class:`~relpos_mm.models.transformer_layer.TransformerLayer`.

    Raises:
        ValueError: Sizes that no layer can have, or an encoding that does not exist.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        *,
        drop_paths: Sequence[float],
        position: Sequence[Mapping[str, Any]],
        grid_size: int | Size,
        window_size: int | Size,
        feedforward_channels: int,
        prefix_tokens: int = 0,
        init_cfg: Mapping[str, Any] | None = None,
        **layer: Any,
    ) -> None:
        super().__init__(init_cfg=init_cfg)
        owner = type(self).__name__
        head_width(owner, embed_dims, num_heads)
        require_counts(owner, feedforward_channels=feedforward_channels)
        self.embed_dims = embed_dims
        self.position_cfg = position_list(owner, position)
        context = {
            "grid_size": as_size(f"{owner}: grid_size", grid_size),
            "window_size": as_size(f"{owner}: window_size", window_size),
            "prefix_tokens": prefix_tokens,
            "depth": len(drop_paths),
        }
        around = [cfg for cfg in self.position_cfg if site_of(cfg) != "block"]
        in_layers = [cfg for cfg in self.position_cfg if site_of(cfg) == "block"]
        encodings = build_positions(
            around, embed_dims=embed_dims, num_heads=num_heads, layer=0, **context
        )
        self.position = nn.ModuleDict({encoding.name: encoding for encoding in encodings})
        self.layers = ModuleList(
            TransformerLayer(
                embed_dims,
                num_heads,
                feedforward_channels,
                drop_path=drop_path,
                position=in_layers,
                context={**context, "layer": i},
                **layer,
            )
            for i, drop_path in enumerate(drop_paths)
        )

    def query_pos(self, x: Tensor, grid: Grid) -> Tensor | None:
        """What ``qk_input`` encodings add to queries and keys, ``(B, N, C)``; None without any."""
        encodings = encodings_of(self.position, "qk_input")
        return embed_tokens(torch.zeros_like(x), encodings, grid) if encodings else None

    def run(self, x: Tensor, facts: TokenFacts) -> Tensor:
        """Run stem, layers and stage encodings; ``(B, N, C)`` in and out."""
        x = embed_tokens(x, encodings_of(self.position, "stem"), facts.grid)
        for i, layer in enumerate(self.layers):
            x = layer(x, facts)
            if i == 0:
                x = embed_tokens(x, encodings_of(self.position, "stage"), facts.grid)
        return x
