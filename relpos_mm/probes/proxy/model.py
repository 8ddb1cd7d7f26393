"""The smallest network that carries any position encoding: one Swin block on letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from relpos_mm.encodings.base import position_modules
from relpos_mm.encodings.grid import Grid, Size
from relpos_mm.encodings.resize import ResizeMode
from relpos_mm.models.swin_layers import SwinStage
from relpos_mm.registry import build_positions, site_of

EMBED_DIMS = 32
NUM_HEADS = 4


class ProxyModel(nn.Module):
    """Letters, one Swin block with unshifted windows, an answer per token.

    One block alone, because what it can represent can be told by thought. A window of the size of
    the map is global attention.

    Args:
        letters: Size of the alphabet.
        classes: Number of answers.
        position: One dict per encoding.
        size: Map ``(H, W)``, also what absolute tables cover.
        window: Window ``(Wh, Ww)``.
    """

    def __init__(
        self,
        letters: int,
        classes: int,
        position: Sequence[Mapping[str, Any]],
        size: Size,
        window: Size,
    ) -> None:
        super().__init__()
        self.size, self.window = size, window
        self.letters = nn.Embedding(letters, EMBED_DIMS)
        stem = [cfg for cfg in position if site_of(cfg) == "stem"]
        encodings = build_positions(stem, embed_dims=EMBED_DIMS, grid_size=size, window_size=window)
        self.position = nn.ModuleDict({encoding.name: encoding for encoding in encodings})
        self.stage = SwinStage(
            EMBED_DIMS,
            num_heads=NUM_HEADS,
            window_size=window,
            mlp_ratio=4.0,
            drop_paths=(0.0,),
            merge=False,
            position=[cfg for cfg in position if site_of(cfg) != "stem"],
            context={"layer": 0, "depth": 1, "grid_size": size},
            small_map="pad",
            with_cp=False,
        )
        self.norm = nn.LayerNorm(EMBED_DIMS)
        self.head = nn.Linear(EMBED_DIMS, classes)

    def forward(self, letters: Tensor) -> Tensor:
        """``(B, H, W)`` letters -> ``(B, H, W, classes)`` logits."""
        grid = Grid((letters.shape[1], letters.shape[2]))
        x = self.letters(letters)
        for encoding in self.position.values():
            x = encoding.embed(x, grid)  # type: ignore[operator]
        return self.head(self.norm(self.stage(x, grid)))


def carried(
    model: ProxyModel, position: Sequence[Mapping[str, Any]], size: Size, mode: ResizeMode
) -> ProxyModel:
    """Return the same network on a map of another size with global attention, without retraining.

    Args:
        model: Trained on the whole map as one window.
        position: Its encodings.
        size: New map ``(H, W)``.
        mode: How tables are carried over.
    """
    letters, classes = model.letters.num_embeddings, model.head.out_features
    other = ProxyModel(letters, classes, position, size, size)
    state = {key: value.detach().clone() for key, value in model.state_dict().items()}
    source = {"window_size": model.window, "grid_size": model.size}
    for name, encoding in position_modules(other).items():
        encoding.transfer(state, f"{name}.", mode=mode, source=source)
    with torch.no_grad():
        other.load_state_dict(state)
    return other
