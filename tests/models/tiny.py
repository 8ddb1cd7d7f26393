"""A four-stage Swin small enough for unit tests, and encodings to put into it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from relpos_mm.encodings import PositionEncoding
from relpos_mm.models import RelPosSwin

ABSOLUTE, RELATIVE, SINES = ({"type": t} for t in ("AbsoluteTable", "RelativeBias", "Sinusoid2d"))
DETR_SINES = {"type": "Sinusoid2d", "form": "detr", "site": "qk_input"}
POSITIONS = {
    "none": [],
    "absolute": [ABSOLUTE],
    "relative": [RELATIVE],
    "absolute_relative": [ABSOLUTE, RELATIVE],
    "sines": [SINES],
    "detr_sines_relative": [DETR_SINES, RELATIVE],
}


def tiny(**changes: Any) -> RelPosSwin:
    """Widths 12 to 96, two blocks per stage, window 7, no stochastic depth."""
    settings: dict[str, Any] = {
        "embed_dims": 12,
        "depths": (2, 2, 2, 2),
        "num_heads": (1, 2, 3, 6),
        "window_size": (7, 7),
        "pretrain_img_size": 64,
        "drop_path_rate": 0.0,
    }
    torch.manual_seed(0)
    return RelPosSwin(**{**settings, **changes})


def loud(model: RelPosSwin) -> RelPosSwin:
    """The model with weights so large that every part of it shows in the output."""
    torch.manual_seed(1)
    for module in model.modules():
        if isinstance(module, PositionEncoding):
            for parameter in module.parameters(recurse=False):
                nn.init.normal_(parameter)
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
            if module.bias is not None:
                nn.init.normal_(module.bias, std=0.5)
    return model


def picture(*size: int, batch: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(batch, 3, *size, generator=generator)
