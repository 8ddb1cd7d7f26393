"""One backbone on one picture: its steps to time, and its results to compare before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from relpos_mm.engine.errors import UserError

from .agreement import largest_error
from .benchmark import LeftOut, Pair, Setting

Arch = Mapping[str, Any]
SWIN_T: Arch = {"embed_dims": 96, "depths": (2, 2, 6, 2), "num_heads": (3, 6, 12, 24)}
DROP_PATH = 0.2
_SETTING = Setting()
# Bytes per pixel that a training step of Swin-T takes at most, which is in float64.
_BYTES_PER_PIXEL = 6000


@dataclass(frozen=True)
class Results:
    """Outputs of all stages, gradient of the picture, and the parameters' by name."""

    outputs: list[Tensor]
    picture: Tensor
    parameters: dict[str, Tensor]

    def renamed(self, prefix: str) -> Results:
        """Results with ``prefix`` taken off the names of parameters."""
        parameters = {name.removeprefix(prefix): grad for name, grad in self.parameters.items()}
        return Results(self.outputs, self.picture, parameters)


def largest_difference(trunk: TrunkStep, result: Results, expected: Results, step: str) -> float:
    """Largest relative difference of what a step computes: outputs, in training gradients too."""
    if step == "inference":  # which may take other kernels than a forward pass with gradients
        return largest_error(trunk.inference(), expected.outputs)
    error = largest_error(result.outputs, expected.outputs)
    names = sorted(expected.parameters)
    return max(
        error,
        largest_error([result.picture], [expected.picture]),
        largest_error(
            [result.parameters[name] for name in names],
            [expected.parameters[name] for name in names],
        ),
    )


class TrunkStep:
    """One network on one picture; in half precision under autocast, as training runs it."""

    def __init__(self, model: nn.Module, x: Tensor, dtype: torch.dtype) -> None:
        self.model, self.x, self.dtype = model, x, dtype
        self._grads: list[Tensor] = []  # of the outputs, whose shapes the first run tells

    def _forward(self, x: Tensor) -> Sequence[Tensor]:
        with torch.autocast(x.device.type, self.dtype, enabled=self.dtype == torch.bfloat16):
            return self.model(x)

    def inference(self) -> list[Tensor]:
        """Return the outputs of all stages in evaluation mode, without autograd."""
        self.model.eval()
        with torch.no_grad():
            return list(self._forward(self.x))

    def training(self) -> None:
        """Go forward in training mode, and backward to all parameters and the picture."""
        self.model.train()
        self._backward()
        self.model.zero_grad(set_to_none=True)

    def _backward(self) -> tuple[list[Tensor], Tensor]:
        x = self.x.detach().requires_grad_()
        outs = list(self._forward(x))
        if not self._grads:
            # Drawn rather than made of the outputs: an output next to zero has either sign.
            generator = torch.Generator().manual_seed(1)
            drawn = (torch.randn(out.shape, generator=generator) for out in outs)
            self._grads = [d.to(out) for d, out in zip(drawn, outs, strict=True)]
        torch.autograd.backward(outs, self._grads)
        return outs, x.grad  # type: ignore[return-value]

    def results(self) -> Results:
        """Return all that a training step computes, with stochastic depth off."""
        self.model.eval()
        outs, picture = self._backward()
        named = self.model.named_parameters()
        parameters = {name: p.grad.detach() for name, p in named if p.grad is not None}
        self.model.zero_grad(set_to_none=True)
        return Results([out.detach() for out in outs], picture, parameters)


def rounding(trunk: TrunkStep, exact: Results, prefix: str, step: str) -> float:
    """What a step in half precision is off by, as :func:`largest_difference`; 0 in float32.

    ``prefix`` is one that names of parameters lack in ``exact``.
    """
    if trunk.dtype == torch.float32:
        return 0.0
    return largest_difference(trunk, trunk.results().renamed(prefix), exact, step)


def over_pictures(
    compare: Callable[..., Iterable[Pair | LeftOut]],
    names: Iterable[str] | None,
    sizes: Iterable[str],
    setting: Setting = _SETTING,
    arch: Arch = SWIN_T,
) -> Iterator[Pair | LeftOut]:
    """Yield what a suite compares at several sizes.

    Args:
        compare: Takes a size and its picture, then the other arguments.
        names: What to compare; None is all, or a choice where a step takes seconds.
        sizes: Written ``2x224x224``.
        setting: Steps, precisions and device.
        arch: Arguments of RelPosSwin.

    Raises:
        UserError: A size or a name that is none.
    """
    for size in sizes:
        x = picture(size, setting.device)
        if isinstance(x, LeftOut):
            yield x
        else:
            yield from compare(size, x, names, setting, arch)


def picture(size: str, device: torch.device) -> Tensor | LeftOut:
    """Return the same noise for the same size, which is written ``BATCHxHEIGHTxWIDTH``.

    A size whose training step the free memory does not hold is left out.

    Raises:
        UserError: The size is written otherwise.
    """
    parts = size.split("x")
    if len(parts) != 3 or not all(part.isdigit() and int(part) for part in parts):
        raise UserError(f"a size is written BATCHxHEIGHTxWIDTH, as 2x224x224, not {size!r}")
    batch, height, width = map(int, parts)
    generator = torch.Generator().manual_seed(0)
    free, needed = _free_bytes(device), _BYTES_PER_PIXEL * batch * height * width
    if free is not None and free < needed:
        why = f"it needs {needed / 2**30:.1f} GiB of memory, {free / 2**30:.1f} GiB are free"
        return LeftOut(f"Swin-T at {size}", why)
    return torch.randn(batch, 3, height, width, generator=generator).to(device)


def _free_bytes(device: torch.device) -> int | None:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    info = Path("/proc/meminfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    found = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable")]
    return found[0] * 1024 if found else None
