"""The core of the benchmark: what is measured, in what order, and when it ends."""

from __future__ import annotations

import pytest
import torch

from relpos_mm.analysis import benchmark
from relpos_mm.analysis.agreement import disagreement
from relpos_mm.analysis.benchmark import Limit, Meter, Pair, peak_mib

from .rows import row

CPU = torch.device("cpu")


def pair(run_base, run, limit: Limit | None = None) -> Pair:
    names = dict(suite="calls", size="detr", dtype="float32", base="none", name="rel")
    return Pair(**names, step="training", run_base=run_base, run=run, error=1e-7, limit=limit)


def nothing() -> None:
    pass


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Peaks are given out from a list instead of counted."""
    peaks = [1, 2, 3, 4]
    monkeypatch.setattr(benchmark, "peak_mib", lambda run, device: peaks.pop(0))
    return peaks


@pytest.mark.usefixtures("no_memory")
def test_sides_run_in_turn() -> None:
    ran: list[str] = []
    result = Meter(3, 60, CPU).measure(pair(lambda: ran.append("A"), lambda: ran.append("B")))
    assert "".join(ran) == "AB" + "ABABAB"  # warm-up, then in turn
    assert result.rounds == 3


@pytest.mark.usefixtures("no_memory")
def test_rows_with_a_bar_have_twice_the_rounds_and_slow_ones_end_early() -> None:
    assert Meter(4, 60, CPU).measure(pair(nothing, nothing, Limit(1.1))).rounds == 8
    assert Meter(9, 0, CPU).measure(pair(nothing, nothing)).rounds == 3


@pytest.mark.usefixtures("no_memory")
def test_ratio_is_the_median_of_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Base and work get slower together, as on a machine that others use: the ratio stays."""
    rounds = [((10, 10), (20, 30)), ((100, 1), (200, 3)), ((7, 1), (7, 3))]
    times = iter([time for both in rounds for time in both])
    monkeypatch.setattr(benchmark, "clock", lambda run, device: next(times))
    result = Meter(3, 60, CPU).measure(pair(nothing, nothing))
    assert (result.ratio, result.wall_ratio) == (2, 3)
    assert (result.ratio_low, result.ratio_high) == (1.5, 2)
    assert (result.base_ms, result.ms) == (10, 20)


def test_the_memory_of_a_base_is_counted_once(no_memory: list[int]) -> None:
    meter = Meter(1, 60, CPU)
    first, second = (meter.measure(pair(nothing, nothing)) for _ in range(2))
    assert (first.base_mib, first.mib, second.base_mib, second.mib) == (1, 2, 1, 3)
    assert no_memory == [4]


def test_peak_counts_what_lives_at_once() -> None:
    def one_after_the_other() -> None:
        for _ in range(3):
            torch.empty(2**18)  # 1 MiB, gone before the next

    def together() -> list[torch.Tensor]:
        return [torch.empty(2**18) for _ in range(3)]

    assert peak_mib(one_after_the_other, CPU) == pytest.approx(1, abs=0.01)
    assert peak_mib(together, CPU) == pytest.approx(3, abs=0.01)


def test_bar_holds_for_time_and_memory() -> None:
    assert row().met is None
    assert row(time_limit=1.2).met is True
    assert row(time_limit=1.1).met is False
    assert row(time_limit=1.2, memory_limit=1.2).met is False


def test_only_rounding_is_agreement() -> None:
    assert disagreement(1e-5, torch.float32) is None
    assert "differs from the reference by 1.0e-02" in disagreement(1e-2, torch.float32)
    assert disagreement(1e-2, torch.bfloat16) is None
    assert disagreement(float("nan"), torch.bfloat16)
