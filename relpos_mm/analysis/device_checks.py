"""What a CUDA device is asked before its numbers are believed; runs on a CPU to test itself."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from relpos_mm.encodings import Grid
from relpos_mm.engine.errors import UserError
from relpos_mm.models import RelPosSwin, attend
from relpos_mm.models.forms import Impl
from relpos_mm.transfer import convert

from .agreement import largest_error, require_agreement
from .benchmark import LeftOut, Meter, Setting, clock
from .benchmark_backbones import pairs
from .catalogue import CATALOGUE, build, position_of
from .trunk_step import SWIN_T

Facts = dict[str, Any]
# One encoding of each kind: table, network, contextual, factored, rotated, on values.
KINDS = ("rel", "dpb", "irpe_k", "decomposed", "rope_mixed", "irpe_v")
# Each takes a kernel of its own to compile: those that differ in what the kernel does.
FLEX_KINDS = ("rel", "decomposed")
TINY: dict[str, Any] = {"embed_dims": 24, "depths": (1, 2), "num_heads": (1, 2)}
# Speed-ups of a backbone against mmdet's in bfloat16 that the project set itself.
TARGETS = {"inference": 1.5, "training": 1.3}


def forms(device: torch.device, dtype: torch.dtype, name: str, images: int = 2) -> Facts:
    """Error of every form of attention in shifted windows against eager float64, with gradients.

    A form that cannot carry the encoding is told by its refusal. On CUDA the memory-efficient
    kernel is also asked for by name, so that a bias it would not take cannot hide.

    Raises:
        UserError: A result that rounding does not explain.
    """
    heads, width, windows, grid = 3, 32, 4, Grid((7, 7))
    torch.manual_seed(0)
    shape = (images * windows, heads, grid.num_queries, width)
    tokens = [torch.randn(shape).to(device, dtype) for _ in "qkv"]
    made = build(position_of(name), grid=grid.q, embed_dims=heads * width, num_heads=heads)
    for parameter in (p for encoding in made for p in encoding.parameters()):
        torch.nn.init.normal_(parameter, std=0.3)
    mask = torch.rand(windows, 1, grid.num_queries, grid.num_keys) > 0.3
    mask = (mask | torch.eye(grid.num_queries, dtype=torch.bool)).to(device)

    def run(impl: Impl, kind: torch.dtype, grads: bool = True) -> list[Tensor]:
        encodings = [encoding.to(device, kind) for encoding in made]
        leaves = [t.to(kind).requires_grad_(grads) for t in tokens]
        with torch.set_grad_enabled(grads):
            q, k, v = leaves
            out = attend(q, k, v, encodings, grid, mask=mask, impl=impl)
        if not grads:
            return [out]
        wanted = [*leaves, *(p for encoding in encodings for p in encoding.parameters())]
        weight = torch.linspace(-1, 1, out.numel(), device=device, dtype=kind).view_as(out)
        return [out.detach(), *torch.autograd.grad((out * weight).sum(), wanted)]

    exact = run("eager", torch.float64)
    cuda = device.type == "cuda"
    asked: list[tuple[str, Impl]] = [("eager", "eager"), ("fused", "fused")]
    asked += [("memory_efficient", "fused")] if cuda else []
    asked += [("flex", "flex")] if name in FLEX_KINDS else []
    facts: Facts = {}
    for label, impl in asked:
        by_name = label == "memory_efficient"
        try:
            with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION) if by_name else nullcontext():
                found = run(impl, dtype, grads=cuda or impl != "flex")
        except ValueError as refusal:
            facts[label] = str(refusal)
            continue
        error = largest_error(found, exact[: len(found)])
        facts[label] = require_agreement(f"{label} with {name} in {dtype}", error, dtype)
    return facts


def gold(device: torch.device, folder: Path) -> Facts:
    """Largest difference to the Swin authors' own outputs, float32 without TF32.

    Raises:
        UserError: It is larger than rounding explains.
    """
    files = ("inputs_w7", "weights_w7_stages012", "outputs_w7_stages012")
    inputs, weights, outputs = (_arrays(folder / f"{name}.npz") for name in files)
    model = RelPosSwin(24, (2, 2, 2), (3, 3, 6), out_indices=(0, 1, 2), pretrain_img_size=64)
    model.load_state_dict(convert(weights, source="official"), strict=False)
    model = model.to(device).eval()
    errors = []
    with torch.no_grad():
        for name in "abc":
            maps = model(inputs[name].float().to(device))
            keys = {i: f"relative/{name}/stage{i}" for i in range(3)}
            errors += [
                largest_error([maps[i].cpu()], [outputs[key]])
                for i, key in keys.items()
                if key in outputs
            ]
    return {"maps": len(errors), "error": require_agreement("gold", max(errors), torch.float32)}


def no_sync(device: torch.device, names: tuple[str, ...] = tuple(CATALOGUE)) -> Facts:
    """Run each encoding's second forward pass where waiting for the device is an error."""
    x = torch.randn(2, 3, 60, 92, generator=torch.Generator().manual_seed(0)).to(device)
    for name in names:
        model = RelPosSwin(**TINY, out_indices=(0, 1), position=position_of(name)).to(device)
        model(x)
        with _sync_is_an_error(device):
            model(x)
    return {"encodings": len(names)}


def speed(device: torch.device, dtype: torch.dtype, size: str, rounds: int, tiny: bool) -> Facts:
    """Times and peak memory of the backbone against mmdet's, outputs compared first."""
    arch = {**TINY, "depths": (1, 1, 1, 1), "num_heads": (1, 2, 4, 8)} if tiny else SWIN_T
    steps = tuple(TARGETS)
    facts: Facts = {}
    setting = Setting(steps, (str(dtype).removeprefix("torch."),), device)
    meter = Meter(rounds, 60, device)
    for pair in pairs(["mmdet"], [size], setting, arch):
        if isinstance(pair, LeftOut):
            raise UserError(f"{pair.what}: {pair.why}")
        row = meter.measure(pair)
        facts[row.step] = {
            "mmdet_ms": row.base_ms,
            "ms": row.ms,
            "speed_up": 1 / row.ratio,
            "target": TARGETS[row.step],
            "mmdet_mib": row.base_mib,
            "mib": row.mib,
            "error": row.error,
        }
    return facts


def compiled(device: torch.device, dtype: torch.dtype, size: str, rounds: int, tiny: bool) -> Facts:
    """First call, time and error of the backbone under ``torch.compile``, inference."""
    batch, height, width = map(int, size.split("x"))
    x = torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(0)).to(device)
    arch = {"embed_dims": 24, "depths": (1,), "num_heads": (1,), "out_indices": (0,)}
    torch.manual_seed(0)
    model = RelPosSwin(**(arch if tiny else SWIN_T)).to(device).eval()
    faster = copy.deepcopy(model)
    faster.compile(backend="eager" if tiny else "inductor", dynamic=False)

    def run(what: Callable[[Tensor], Any]) -> list[Tensor]:
        with torch.no_grad(), torch.autocast(device.type, dtype):
            return list(what(x))

    expected, started = run(model), time.perf_counter()
    error = largest_error(run(faster), expected)
    first = time.perf_counter() - started
    times = [[clock(lambda m=m: run(m), device)[0] for m in (model, faster)] for _ in range(rounds)]  # type: ignore[misc]
    eager_ms, ms = (median(column) for column in zip(*times, strict=True))
    require_agreement("torch.compile", error, dtype)
    return {"first_call_s": first, "eager_ms": eager_ms, "ms": ms, "error": error}


def _arrays(path: Path) -> dict[str, Tensor]:
    with np.load(path) as file:
        return {key: torch.from_numpy(file[key]) for key in file}


@contextmanager
def _sync_is_an_error(device: torch.device) -> Iterator[None]:
    if device.type != "cuda":
        yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
