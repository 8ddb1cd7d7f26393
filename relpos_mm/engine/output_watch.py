"""Notice NaN on its way through a model, which an evaluation would count as 'found nothing'."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn


class OutputWatch:
    """Look for NaN in what the large parts of a model return.

    Predictions do not tell: a NaN score is below every threshold, so it just disappears.
    Infinity is not looked for, since detectors mask scores with it.

    Args:
        model: The bare model; its children and their children are watched.
    """

    def __init__(self, model: nn.Module) -> None:
        self._found: list[tuple[str, Tensor]] = []
        self._handles = [
            module.register_forward_hook(self._note(name))
            for name, module in model.named_modules()
            if name and name.count(".") < 2
        ]

    def first(self) -> str | None:
        """Return the first part that returned NaN since the last call; None without any."""
        found, self._found = self._found, []
        return next((name for name, bad in found if bool(bad)), None)

    def close(self) -> None:
        """Stop watching."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _note(self, name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            # Kept as a tensor: asking each one for its value would stop the GPU every time.
            self._found += [(name, tensor.isnan().any()) for tensor in _floats(output)]

        return hook


def _floats(node: Any) -> Iterator[Tensor]:
    if torch.is_tensor(node):
        if torch.is_floating_point(node):
            yield node
    elif isinstance(node, Mapping):
        for value in node.values():
            yield from _floats(value)
    elif isinstance(node, (list, tuple)):
        for value in node:
            yield from _floats(value)
