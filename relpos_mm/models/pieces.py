"""Layers that see one token at a time, on pieces of a map instead of the whole map."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# Measured: the hidden layer of 1,024 tokens stays in the cache. A small map has little to gain, and
# products of a few hundred tokens are slower than one.
_PIECE = 1024
_SMALLEST_MAP = 4 * _PIECE


def in_pieces(layers: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """``layers(x)`` for maps ``(..., C)``, computed in pieces where that is faster.

    On a CPU the hidden layer of a large map is fresh memory in every call, which takes long to get
    from the system (docs/performance_tried.md); pieces reuse what the last one has freed, also in
    the backward pass.
    """
    tokens = x.flatten(0, -2)
    traced = torch.jit.is_tracing() or torch.compiler.is_compiling()
    if traced or x.device.type != "cpu" or len(tokens) < _SMALLEST_MAP:
        return layers(x)
    return torch.cat([layers(piece) for piece in tokens.split(_PIECE)]).view(*x.shape[:-1], -1)
