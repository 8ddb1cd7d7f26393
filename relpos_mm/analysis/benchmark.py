"""Two ways to do the same work, measured in turn (A B A B ...): the core of every benchmark.

A suite is a generator of :class:`Pair`; it checks that both sides compute the same before it yields
one, so that no time of a wrong result is ever printed. What it cannot or must not measure it yields
as :class:`LeftOut`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from statistics import median, quantiles

import torch
from torch.profiler import ProfilerActivity, profile

from .agreement import disagreement

Run = Callable[[], object]
SUITES = ("parity", "backbones", "trunk", "steps", "cells", "calls")
STEPS = ("inference", "training")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CPU = torch.device("cpu")
# Kernels of a device are chosen and its clock is raised in the first runs.
_WARM_UP = {"cpu": 1, "cuda": 5}


@dataclass(frozen=True)
class Limit:
    """A bar that a pair has to stay under: ratios to the base."""

    time: float
    memory: float | None = None


@dataclass(frozen=True)
class Comparison:
    """What is compared with what.

    Attributes:
        suite: ``backbones``, ``trunk``, ``steps`` or ``calls``.
        size: Name of the input.
        dtype: ``float32`` or ``bfloat16``.
        base: Name of the base.
        name: Name of what is compared with it.
        step: ``inference`` or ``training`` (forward and backward).
    """

    suite: str
    size: str
    dtype: str
    base: str
    name: str
    step: str


@dataclass(frozen=True)
class Pair(Comparison):
    """Both sides of a comparison, ready to run.

    Attributes:
        run_base: The base's work.
        run: The work compared.
        error: Largest relative difference to the reference result, checked by the suite.
        limit: Bar for the ratio, where there is one.
    """

    run_base: Run = field(repr=False)
    run: Run = field(repr=False)
    error: float
    limit: Limit | None = None


@dataclass(frozen=True)
class LeftOut:
    """What has no row.

    Attributes:
        what: Name of what was to be measured.
        why: The reason.
        wrong: Its result is wrong; else it cannot be done here.
        suite: The suite, which the tool fills in.
    """

    what: str
    why: str
    wrong: bool = False
    suite: str = ""


@dataclass(frozen=True)
class Setting:
    """How a suite is run: which steps, in which precisions, where."""

    steps: Sequence[str] = STEPS
    dtypes: Sequence[str] = ("float32",)
    device: torch.device = CPU


def compared(
    base: object,
    contender: object,
    names: dict[str, str],
    steps: Sequence[str],
    error_of: Callable[[str], float],
    limit_of: Callable[[str], Limit | None],
    base_error_of: Callable[[str], float] = lambda step: 0.0,
) -> Iterator[Pair | LeftOut]:
    """Yield a pair per step, unless the results of the step differ.

    Args:
        base: Has a method per step; so has ``contender``.
        contender: What is compared with the base.
        names: ``suite``, ``size``, ``dtype``, ``base`` and ``name`` of the pairs.
        steps: Steps to compare.
        error_of: Difference of a step's results to the reference.
        limit_of: Bar of a step.
        base_error_of: Difference of other code of the same precision, such as the base, to the
            reference: what this precision explains.
    """
    for step in steps:
        error = error_of(step)
        if why := disagreement(error, DTYPES[names["dtype"]], base_error_of(step)):
            what = f"{names['name']} against {names['base']}, {names['size']}, {names['dtype']}"
            yield LeftOut(f"{what}, {step}", why, wrong=True)
            continue
        yield Pair(
            **names,
            step=step,
            run_base=getattr(base, step),
            run=getattr(contender, step),
            error=error,
            limit=limit_of(step),
        )


@dataclass(frozen=True)
class Row(Comparison):
    """What was measured of a pair; times in ms.

    ``ratio`` and ``wall_ratio`` are medians over ``rounds``, ``ratio_low`` and ``ratio_high`` the
    quartiles of the former.
    """

    rounds: int
    base_ms: float
    ms: float
    ratio: float
    ratio_low: float
    ratio_high: float
    wall_ratio: float
    base_mib: float
    mib: float
    error: float
    time_limit: float | None
    memory_limit: float | None

    @property
    def memory_ratio(self) -> float:
        """Peak memory over the base's."""
        return self.mib / self.base_mib

    @property
    def met(self) -> bool | None:
        """Whether the bar holds; None where there is none."""
        if self.time_limit is None:
            return None
        return self.ratio <= self.time_limit and (
            self.memory_limit is None or self.memory_ratio <= self.memory_limit
        )


def clock(run: Run, device: torch.device) -> tuple[float, float]:
    """Return (own, wall) milliseconds of one run.

    Own time is what other processes blur least: CPU time of this process, on CUDA the time between
    two events on the device.
    """
    if device.type == "cuda":
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        torch.cuda.synchronize(device)
        started = time.perf_counter()
        events[0].record()
        run()
        events[1].record()
        torch.cuda.synchronize(device)
        return events[0].elapsed_time(events[1]), (time.perf_counter() - started) * 1e3
    started, cpu = time.perf_counter(), time.process_time()
    run()
    own = time.process_time() - cpu
    return own * 1e3, (time.perf_counter() - started) * 1e3


def peak_mib(run: Run, device: torch.device) -> float:
    """Return the peak of memory that one run takes for tensors, in MiB.

    Every allocation and release of torch's allocator counts, so the number does not depend on the
    machine, on its load or on what the process keeps for later.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        run()
        torch.cuda.synchronize(device)
        return (torch.cuda.max_memory_allocated(device) - before) / 2**20
    held = peak = 0
    for change in allocations(run):
        held += change
        peak = max(peak, held)
    return peak / 2**20


def allocations(run: Run) -> list[int]:
    """Bytes of every allocation (positive) and release (negative) of a run on the CPU, in order."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        run()
    events = trace.profiler.kineto_results.events()
    changes = [(e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"]
    return [change for _, change in sorted(changes, key=lambda pair: pair[0])]


@dataclass
class Meter:
    """Measures pairs one after the other.

    Attributes:
        rounds: Runs of each side; twice as many where there is a bar.
        seconds: A pair that takes longer ends early, after three rounds at least; twice as many
            where there is a bar.
        device: Where the pairs run.
    """

    rounds: int
    seconds: float
    device: torch.device
    _base_mib: dict[tuple[str, ...], float] = field(default_factory=dict)

    def measure(self, pair: Pair) -> Row:
        """Warm both sides up, count their memory, then run them in turn."""
        base = (pair.suite, pair.size, pair.dtype, pair.base, pair.step)
        for _ in range(_WARM_UP.get(self.device.type, 1)):
            pair.run_base()
            pair.run()
        if base not in self._base_mib:
            self._base_mib[base] = peak_mib(pair.run_base, self.device)
        mib = peak_mib(pair.run, self.device)
        times = self._times(pair)
        ratios = [own[0] / base_own[0] for base_own, own in times]
        low, _, high = quantiles(ratios, n=4, method="inclusive") if len(times) > 1 else ratios * 3
        return Row(
            **{one.name: getattr(pair, one.name) for one in fields(Comparison)},
            rounds=len(times),
            base_ms=median(base_own[0] for base_own, _ in times),
            ms=median(own[0] for _, own in times),
            ratio=median(ratios),
            ratio_low=low,
            ratio_high=high,
            wall_ratio=median(own[1] / base_own[1] for base_own, own in times),
            base_mib=self._base_mib[base],
            mib=mib,
            error=pair.error,
            time_limit=pair.limit.time if pair.limit else None,
            memory_limit=pair.limit.memory if pair.limit else None,
        )

    def _times(self, pair: Pair) -> list[tuple[tuple[float, float], tuple[float, float]]]:
        """(own, wall) of base and contender, round by round."""
        more = 2 if pair.limit else 1
        end = time.perf_counter() + more * self.seconds
        times: list[tuple[tuple[float, float], tuple[float, float]]] = []
        while len(times) < more * max(self.rounds, 1):
            if len(times) >= 3 and time.perf_counter() > end:
                break
            times.append((clock(pair.run_base, self.device), clock(pair.run, self.device)))
        return times
