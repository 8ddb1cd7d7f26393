"""Two ways to do the same work, measured in turn (A B A B ...): the core of every benchmark.

A suite is a generator of :class:`Pair`; it checks that both sides compute the same before it yields
one, so that no time of a wrong result is ever printed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile

Run = Callable[[], object]


@dataclass(frozen=True)
class Limit:
    """A bar that a pair has to stay under: ratios to the base."""

    time: float
    memory: float | None = None


@dataclass(frozen=True)
class Pair:
    """A base and what is compared with it.

    Attributes:
        suite: ``encodings`` or ``backbones``.
        size: Name of the input.
        base: Name of the base.
        name: Name of what is compared.
        step: ``inference`` or ``training`` (forward and backward).
        run_base: The base's work.
        run: The work compared.
        error: Largest relative difference to the reference result, checked by the suite.
        limit: Bar for the ratio, where there is one.
    """

    suite: str
    size: str
    base: str
    name: str
    step: str
    run_base: Run = field(repr=False)
    run: Run = field(repr=False)
    error: float
    limit: Limit | None = None


@dataclass(frozen=True)
class Row:
    """What was measured of a pair; times in ms, ``ratio`` and ``wall_ratio`` are medians."""

    suite: str
    size: str
    base: str
    name: str
    step: str
    base_ms: float
    ms: float
    ratio: float
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

    Own time is what other processes cannot blur: CPU time of this process, on CUDA the time between
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
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        run()
    events = trace.profiler.kineto_results.events()
    changes = [(e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"]
    held = peak = 0
    for _, change in sorted(changes, key=lambda pair: pair[0]):
        held += change
        peak = max(peak, held)
    return peak / 2**20


def measure(pair: Pair, rounds: int, device: torch.device) -> Row:
    """Run both sides once to warm up, once for their memory, then ``rounds`` times in turn."""
    memory = {}
    for run in (pair.run_base, pair.run):
        run()
        memory[run] = peak_mib(run, device)
    times = [(clock(pair.run_base, device), clock(pair.run, device)) for _ in range(max(rounds, 1))]
    return Row(
        suite=pair.suite,
        size=pair.size,
        base=pair.base,
        name=pair.name,
        step=pair.step,
        base_ms=median(base[0] for base, _ in times),
        ms=median(own[0] for _, own in times),
        ratio=median(own[0] / base[0] for base, own in times),
        wall_ratio=median(own[1] / base[1] for base, own in times),
        base_mib=memory[pair.run_base],
        mib=memory[pair.run],
        error=pair.error,
        time_limit=pair.limit.time if pair.limit else None,
        memory_limit=pair.limit.memory if pair.limit else None,
    )
