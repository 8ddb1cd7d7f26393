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


def call_promoted(module: nn.Conv2d, x: Tensor) -> Tensor:
    """``module(x)`` in the dtype of ``x``, computed in the wider one of its own and the module's.

    Where the two agree, or autocast brings them together, it is ``module(x)`` itself.
    """
    own = module.weight.dtype
    # Autocast leaves float64 as it is.
    if own == x.dtype or (
        torch.is_autocast_enabled(x.device.type) and torch.float64 not in (own, x.dtype)
    ):
        return module(x)
    dtype = torch.promote_types(own, x.dtype)
    wide = {name: parameter.to(dtype) for name, parameter in module.named_parameters()}
    with torch.autocast(x.device.type, enabled=False):
        return torch.func.functional_call(module, wide, (x.to(dtype),)).to(x.dtype)
