"""What ``torch.compile`` of the backbone costs, and what it saves.

``python -m relpos_mm.analysis.compile_cost`` measures again and renews docs/compile.json and the
table in docs/compile.md.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from relpos_mm.engine.errors import UserError
from relpos_mm.models import RelPosSwin

from .agreement import largest_error, require_agreement
from .benchmark import CPU, STEPS, LeftOut, clock
from .measured_page import MeasuredPage
from .tables import markdown_table
from .trunk_step import SWIN_T, Arch, TrunkStep, picture

# The first two differ in what a compiler may take for a rule (a square, a single window); what
# comes after them is served by their graphs.
SIZES = ("1x224x224", "1x512x683", "1x333x290")


def measured(
    step: str, sizes: Sequence[str], rounds: int, arch: Arch = SWIN_T, **options: Any
) -> Iterator[dict[str, Any]]:
    """Time the first call and later ones at several sizes, in float32 on the CPU.

    Args:
        step: ``inference`` or ``training``.
        sizes: Written ``1x224x224``, in the order of the calls.
        rounds: Runs of both sides, in turn.
        arch: Arguments of RelPosSwin.
        **options: Of ``torch.compile``.

    Raises:
        UserError: Results differ by more than rounding explains, memory is short, or a size is
            none.
    """
    torch.compiler.reset()
    torch.manual_seed(0)
    eager = RelPosSwin(**arch, drop_path_rate=0.0)
    compiled = copy.deepcopy(eager)
    compiled.compile(**options)
    for size in sizes:
        x = picture(size, CPU)
        if isinstance(x, LeftOut):
            raise UserError(f"{x.what}: {x.why}")
        trunks = [TrunkStep(model, x, torch.float32) for model in (eager, compiled)]
        before, after = (getattr(trunk, step) for trunk in trunks)
        started = time.perf_counter()
        after()
        first = time.perf_counter() - started
        before()
        times = [(clock(before, CPU)[0], clock(after, CPU)[0]) for _ in range(rounds)]
        error = _error(step, eager, compiled, x)
        yield {
            "step": step,
            "size": size,
            "first_call_s": first,
            "eager_ms": median(one for one, _ in times),
            "ms": median(one for _, one in times),
            "ratio": median(one / other for other, one in times),
            "error": require_agreement(f"torch.compile, {size}, {step}", error, torch.float32),
        }


def _error(step: str, eager: nn.Module, compiled: nn.Module, x: Tensor) -> float:
    """Largest difference of outputs, in training of all gradients too."""
    with torch.set_grad_enabled(step == "training"):
        outs = [model(x) for model in (eager, compiled)]
    error = largest_error(outs[1], outs[0])
    if step == "training":
        for model, out in zip((eager, compiled), outs, strict=True):
            model.zero_grad()
            sum(one.square().mean() for one in out).backward()
        expected, found = (
            [p.grad for p in model.parameters() if p.grad is not None]
            for model in (eager, compiled)
        )
        error = max(error, largest_error(found, expected))
    return error


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows of the record as a table in Markdown."""
    header = ["step", "picture", "first call, s", "eager, ms", "compiled, ms", "speed-up", "error"]
    cells = [
        [
            *(row["step"], row["size"], f"{row['first_call_s']:.1f}"),
            *(f"{row['eager_ms']:.0f}", f"{row['ms']:.0f}", f"{1 / row['ratio']:.2f}"),
            f"{row['error']:.0e}",
        ]
        for row in rows
    ]
    return markdown_table(header, cells)


PAGE = MeasuredPage("compile", "compiled", table)


def main(rounds: int = 5) -> None:
    """Measure both steps and renew the record and the page."""
    torch.compiler.config.force_disable_caches = True  # kernels of earlier runs lie on the disk
    PAGE.measure(row for step in STEPS for row in measured(step, SIZES, rounds))


if __name__ == "__main__":
    main()
