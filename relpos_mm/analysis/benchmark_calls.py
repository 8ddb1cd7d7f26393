"""The suite ``calls``: one attention call with each encoding against the same without."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from statistics import median

import torch
from torch import Tensor

from relpos_mm.encodings.irpe_buckets import BucketRule, gather_ids
from relpos_mm.engine.errors import UserError
from relpos_mm.models.forms import Impl

from .agreement import largest_error
from .attention_call import Attention, Shape, encodings_of
from .benchmark import DTYPES, STEPS, LeftOut, Limit, Pair, Setting, allocations, compared
from .catalogue import CATALOGUE
from .published_irpe import PublishedIrpe

BASE = "none"
_SETTING = Setting()
_NAMES = {"suite": "calls", "base": BASE}
# From few tokens to many, each as a model has it.
SHAPES: dict[str, Shape] = {
    "window": Shape(128, 3, (7, 7), 32),  # Swin-T's first stage, two images at 224
    "vit": Shape(8, 6, (14, 14), 64, prefix=1),  # DeiT-S at 224
    "detr": Shape(2, 8, (25, 38), 32, ratio=2.0),  # a batch of DETR at 800 x 1216
    "vitdet": Shape(1, 1, (64, 64), 64),  # one head of ViTDet's global attention at 1024
}
# Attention without encoding by the fused kernel, and iRPE as its authors wrote it.
FUSED = "none_fused"
PUBLISHED = {"irpe_k_published": "irpe_k", "irpe_v_published": "irpe_v"}
LIMIT_SIZE = "detr"
# Ratios to attention without encoding that the project set itself, by (encoding, step).
LIMITS: dict[tuple[str, str], Limit] = {
    ("irpe_k", "training"): Limit(1.35),
    ("irpe_k", "inference"): Limit(1.1),
    ("irpe_v", "training"): Limit(1.4, memory=1.1),
}
NEW_GRID_MS = 2.0
# Where bfloat16 is measured: elsewhere it takes minutes on a CPU.
_HALF_PRECISION = ("window",)


def pairs(
    names: Iterable[str] | None,
    shapes: Iterable[str],
    setting: Setting = _SETTING,
) -> Iterator[Pair | LeftOut]:
    """Yield each encoding against none; outputs and gradients equal eager float64 attention.

    The base builds its attention matrix, as the published layers do.

    Raises:
        UserError: An unknown shape or encoding.
    """
    device = setting.device
    for size in shapes:
        if size not in SHAPES:
            raise UserError(f"no shape is called {size!r}; known: {', '.join(SHAPES)}")
        for dtype in setting.dtypes:
            if dtype != "float32" and size not in _HALF_PRECISION:
                continue
            base = _call(SHAPES[size], BASE, DTYPES[dtype], device)
            for name in _names(size) if names is None else names:
                call = _call(SHAPES[size], name, DTYPES[dtype], device)
                exact = _eager(call, SHAPES[size], torch.float64, device).training()
                plain = _eager(call, SHAPES[size], DTYPES[dtype], device)
                barred = size == LIMIT_SIZE and dtype == "float32"
                limits = {step: LIMITS.get((name, step)) for step in STEPS if barred}
                yield from compared(
                    base,
                    call,
                    {**_NAMES, "size": size, "dtype": dtype, "name": name},
                    setting.steps,
                    partial(_error, call, exact),
                    limits.get,
                    partial(_error, plain, exact),
                )


def _error(call: Attention, exact: Sequence[Tensor], step: str) -> float:
    result = getattr(call, step)()
    return largest_error(result, exact[: len(result)])


def _names(size: str) -> list[str]:
    return [*CATALOGUE, FUSED, *PUBLISHED] if size == LIMIT_SIZE else list(CATALOGUE)


def _call(shape: Shape, name: str, dtype: torch.dtype, device: torch.device | str) -> Attention:
    if name in (BASE, FUSED):
        impl: Impl = "eager" if name == BASE else "fused"
        return Attention(shape, [], dtype=dtype, device=device, impl=impl)
    make = PublishedIrpe if name in PUBLISHED else Attention
    encodings = encodings_of(shape, PUBLISHED.get(name, name))
    return make(shape, encodings, dtype=dtype, device=device)


def _eager(
    call: Attention, shape: Shape, dtype: torch.dtype, device: torch.device | str
) -> Attention:
    """Return the same call in plain operations, on numbers that the call's own precision holds.

    In float64 it is the reference. In the call's precision its error is that of the formula: the
    gradient of ``dpb``'s last bias, which softmax ignores, is rounding of a sum over all pairs.
    """
    eager = Attention(shape, call.encodings, dtype=dtype, device=device, impl="eager")
    eager.qkv, eager.map = [t.to(dtype) for t in call.qkv], call.map.to(dtype)
    eager.grads = [t.to(dtype) for t in call.grads]
    return eager


def new_grid_ms(device: torch.device | str = "cpu", grids: int = 7) -> float:
    """Median CPU time to make iRPE's bucket ids of a grid that was not seen before, in ms.

    All layers of a model share them.
    """
    rule = BucketRule("product", 2.0)
    times = []
    for i in range(grids):
        started = time.process_time()
        gather_ids(rule, (25, 38 - i), 0, torch.device(device))
        times.append((time.process_time() - started) * 1e3)
    return median(times)


def largest_tensor(name: str, size: str) -> dict[str, float]:
    """MiB of the largest tensor that a training step allocates, and of an N x N matrix."""
    call = _call(SHAPES[size], name, torch.float32, "cpu")
    call.training()
    tokens = call.grid.num_queries
    run: Callable[[], list[Tensor]] = call.training
    return {"mib": max(allocations(run)) / 2**20, "matrix_mib": 4 * tokens**2 / 2**20}
