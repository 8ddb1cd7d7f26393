"""Which library multiplies float32 matrices on a CPU: torch's default BLAS, or oneDNN.

On some CPUs the default BLAS (MKL) takes a slow path. torch's float32 precision "medium" hands
products over to oneDNN, and allows it bfloat16 inside. Without AMX oneDNN keeps float32 arithmetic;
with AMX it does use bfloat16. So the machine is asked: a probe compares both with float64, and with
each other in time.

The switch is ``torch.set_float32_matmul_precision``. The narrower one for oneDNN alone,
``torch.backends.mkldnn.matmul.fp32_precision``, makes ``torch.compile`` raise an error.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch
from mmengine.config import Config
from mmengine.dist import all_gather_object
from torch import Tensor

from .errors import UserError

AUTO, DEFAULT, ONEDNN = "auto", "default", "onednn"
VARIABLE = "RELPOS_MM_CPU_GEMM"
# Where oneDNN is the fast one it is so by far (1.7 and more); elsewhere the ratio is 0.8 to 1.2.
# A bar in between gives one machine the same answer every time, and thus the same losses.
MIN_SPEEDUP = 1.4
_ROUNDS = 5
# Far above what summing in another order changes, far below bfloat16.
_MAX_ERROR = 4.0
# (rows, in, out) of linear layers and their gradients: stages 1 and 3 of Swin-T, a mini head.
_LINEAR = ((392, 96, 384), (98, 384, 768), (64, 2352, 128))
_BATCHED = (64, 49, 32)  # windows x heads, tokens, channels of a head


@dataclass(frozen=True)
class Probe:
    """What the machine said; errors are in units of float32's rounding, see :func:`probe`.

    Attributes:
        error: Largest error of oneDNN against float64.
        default_error: The same of the default BLAS.
        speedup: CPU time of the default BLAS over that of oneDNN.
    """

    error: float
    default_error: float
    speedup: float

    @property
    def accurate(self) -> bool:
        """Whether oneDNN keeps float32 arithmetic."""
        return self.error <= _MAX_ERROR

    def __str__(self) -> str:
        return (
            f"{self.speedup:.2f} times as fast as the default, error {self.error:.2g} "
            f"(default {self.default_error:.2g}) in float32 roundings"
        )


@dataclass(frozen=True)
class Route:
    """What multiplies: ``default``, ``onednn``, or None on a GPU; as wished, and why."""

    name: str | None
    wish: str
    why: str

    def __str__(self) -> str:
        return f"{self.name} (cpu_gemm {self.wish}): {self.why}"


def settle_wish(cfg: Config) -> None:
    """Set ``cpu_gemm`` of a config: the environment's, else the config's, else ``auto``.

    Raises:
        UserError: It is none of the three values.
    """
    variable = os.environ.get(VARIABLE)
    where, wish = (VARIABLE, variable) if variable else ("cpu_gemm", cfg.get("cpu_gemm", AUTO))
    if wish not in (AUTO, DEFAULT, ONEDNN):
        raise UserError(f"{where} must be {AUTO!r}, {DEFAULT!r} or {ONEDNN!r}, got {wish!r}")
    cfg.cpu_gemm = wish


def take_route(wish: str, gpu: bool) -> Route:
    """Choose the route of this process and all it is connected with, and switch to it.

    Args:
        wish: ``auto``, ``default`` or ``onednn``.
        gpu: Whether the run computes on a GPU, which this does not concern.

    Raises:
        UserError: ``onednn`` is asked for where it would not compute in float32.
    """
    if gpu:
        return Route(None, wish, "the run is on a GPU")
    # Every machine must be accurate; the first one's clock decides for all.
    probes: list[Probe] = [] if wish == DEFAULT else all_gather_object(probe())
    route = _choose(wish, probes)
    use_onednn(route.name == ONEDNN)
    return route


def _choose(wish: str, probes: list[Probe]) -> Route:
    if not probes:
        return Route(DEFAULT, wish, "as set")
    worst, first = max(probes, key=lambda probe: probe.error), probes[0]
    if wish == ONEDNN:
        if not worst.accurate:
            raise UserError(
                f"cpu_gemm='onednn': oneDNN does not compute in float32 on this CPU ({worst}). "
                f"Set {VARIABLE}=default (and --resume-changed, if a training is to go on)"
            )
        return Route(ONEDNN, wish, f"as set; it is {first}")
    if not worst.accurate:
        return Route(DEFAULT, wish, f"oneDNN does not compute in float32 here: {worst}")
    name = ONEDNN if first.speedup >= MIN_SPEEDUP else DEFAULT
    return Route(name, wish, f"oneDNN is {first}; it is taken from {MIN_SPEEDUP} times on")


def use_onednn(on: bool) -> None:
    """Hand float32 products of this process to oneDNN, or back to the default BLAS."""
    torch.set_float32_matmul_precision("medium" if on else "highest")


@contextmanager
def _as_it_was() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@cache
def probe() -> Probe:
    """Compare both routes on this machine, once per process; takes a tenth of a second.

    The error of a product over ``k`` terms is the largest one over the largest result, in units of
    ``eps * sqrt(k)`` of float32. bfloat16 is off by about a hundred of these.
    """
    errors, seconds = [0.0, 0.0], [0.0, 0.0]
    with _as_it_was(), torch.no_grad():
        for product, factors, terms in _products():
            exact = product(*[factor.double() for factor in factors])
            unit = torch.finfo(torch.float32).eps * math.sqrt(terms) * float(exact.abs().max())
            times: tuple[list[float], list[float]] = ([], [])
            for turn in range(_ROUNDS):
                for onednn in (False, True):
                    use_onednn(onednn)
                    started = time.process_time()
                    result = product(*factors)
                    times[onednn].append(time.process_time() - started)
                    if turn == 0:
                        off = float((result - exact).abs().max()) / unit
                        # NaN is the worst of errors, but a maximum could lose it.
                        errors[onednn] = max(errors[onednn], off if off == off else math.inf)
            for onednn in (False, True):
                seconds[onednn] += min(times[onednn])  # the least disturbed one
    return Probe(errors[True], errors[False], seconds[False] / max(seconds[True], 1e-9))


def _products() -> Iterator[tuple[Callable[..., Tensor], tuple[Tensor, ...], int]]:
    """Yield products of the kinds that a training step has, their factors, terms in each sum."""
    random = torch.Generator().manual_seed(0)  # the run's own numbers stay as they are
    for rows, size, width in _LINEAR:
        x, weight, bias, grad = (
            torch.randn(shape, generator=random)
            for shape in ((rows, size), (width, size), (width,), (rows, width))
        )
        yield torch.nn.functional.linear, (x, weight, bias), size
        yield torch.matmul, (grad, weight), width
        yield torch.matmul, (grad.T, x), rows
    windows, tokens, channels = _BATCHED
    q, k = (torch.randn(windows, tokens, channels, generator=random) for _ in range(2))
    yield torch.matmul, (q, k.mT), channels
