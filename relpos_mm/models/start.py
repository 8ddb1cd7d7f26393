"""Initial values that ViT and Swin share."""

from __future__ import annotations

from torch import nn

from relpos_mm.encodings.base import position_modules


def start_linears(model: nn.Module) -> None:
    """Draw every linear layer of ``model`` from a truncated normal of 0.02, with biases 0.

    Encodings start themselves: drawing for their layers here would shift all others' numbers.
    """
    encoded = {m for found in position_modules(model).values() for m in found.modules()}
    for module in model.modules():
        if isinstance(module, nn.Linear) and module not in encoded:
            nn.init.trunc_normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
