"""Small backbones with random values, and state dicts in other layouts made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from relpos_mm.models import RelPosSwin

FILES = Path(__file__).resolve().parents[1] / "data" / "files" / "transfer"
POSITIONS = {
    "noenc": [],
    "absonly": [{"type": "AbsoluteTable"}],
    "relonly": [{"type": "RelativeBias"}],
    "absrel": [{"type": "AbsoluteTable"}, {"type": "RelativeBias"}],
}


def backbone_config(encoding: str = "relonly", **changes: Any) -> dict[str, Any]:
    """Config of a two-stage backbone on pictures of 32 px: grids 8x8 and 4x4, window 4."""
    config = {
        "type": "RelPosSwin",
        "embed_dims": 8,
        "depths": (1, 2),
        "num_heads": (2, 4),
        "window_size": (4, 4),
        "pretrain_img_size": 32,
        "out_indices": (0, 1),
        "position": POSITIONS[encoding],
    }
    return config | changes


def build(encoding: str = "relonly", **changes: Any) -> RelPosSwin:
    """The backbone of :func:`backbone_config` with random values everywhere."""
    config = backbone_config(encoding, **changes)
    del config["type"]
    return randomise(RelPosSwin(**config))


def randomise(model: nn.Module, seed: int = 0) -> Any:
    """Give every parameter a value that no other has, so that no mix-up can go unseen."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.3
        around = 1 if "norm" in name and name.endswith("weight") else 0
        parameter.data = (noise + around).to(parameter.dtype)
    return model


def load_npz(name: str) -> dict[str, Tensor]:
    """Arrays of a fixture file as tensors."""
    with np.load(FILES / name) as arrays:
        return {key: torch.from_numpy(arrays[key]) for key in arrays.files}


def same_tensors(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    """Same names in any order, same dtypes, same bits."""
    return left.keys() == right.keys() and all(
        value.dtype == right[key].dtype and torch.equal(value, right[key])
        for key, value in left.items()
    )
