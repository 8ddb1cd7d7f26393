"""Training in bfloat16 on any device that has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from mmengine.optim import OptimWrapper
from mmengine.registry import OPTIM_WRAPPERS
from mmengine.runner.amp import autocast
from torch import nn


@OPTIM_WRAPPERS.register_module()
class Bfloat16OptimWrapper(OptimWrapper):
    """mmengine's wrapper with the forward pass in bfloat16.

    bfloat16 has float32's range, so there is no loss scale that could collapse or diverge, and it
    runs on CPU as well, where mmengine's ``AmpOptimWrapper`` refuses to be built.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._prepared = False

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        if not self._prepared:
            guard_float32_ops(model)
            self._prepared = True
        with super().optim_context(model), autocast(dtype=torch.bfloat16):
            yield


def guard_float32_ops(model: nn.Module) -> None:
    """Hand float32 to mmcv's compiled ops (RoI align, NMS), which have no bfloat16 kernels.

    In a detector these are reached through the inputs of RoI extractors and through the
    predictions of the region proposal head. Casts do nothing to what is float32 already.
    """
    for module in model.modules():
        if hasattr(module, "roi_layers"):
            module.register_forward_pre_hook(lambda _, args: as_float32(args))
        elif hasattr(module, "loss_and_predict"):
            module.register_forward_hook(lambda _, args, output: as_float32(output))


def as_float32(node: Any) -> Any:
    """Return nested containers with every bfloat16 tensor cast to float32."""
    if torch.is_tensor(node):
        return node.float() if node.dtype == torch.bfloat16 else node
    if isinstance(node, Mapping):
        return {key: as_float32(value) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return type(node)(as_float32(value) for value in node)
    return node
