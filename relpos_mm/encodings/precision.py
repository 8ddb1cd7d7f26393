"""Coordinates, angles and small position networks in float32 or better, whatever the model runs in.

bfloat16 counts exactly to 256 only, so a position that passed through it is another position.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def widen(tensor: Tensor) -> Tensor:
    """The tensor in float32, or in float64 if it is float64 already."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def call_wide(module: nn.Module, x: Tensor) -> Tensor:
    """``module(x)`` in float32 (float64 for a float64 module), outside autocast.

    Parameters in half precision are used at their values, only the arithmetic is wide; gradients
    reach them.
    """
    dtype = widen(next(module.parameters())).dtype
    with torch.autocast(x.device.type, enabled=False):
        if all(parameter.dtype == dtype for parameter in module.parameters()):
            return module(x.to(dtype))
        wide = {name: parameter.to(dtype) for name, parameter in module.named_parameters()}
        return torch.func.functional_call(module, wide, (x.to(dtype),))
