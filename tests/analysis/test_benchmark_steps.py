"""The suite of whole steps: both sides do the same, on the route that they are said to take."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from relpos_mm.analysis import benchmark_steps
from relpos_mm.analysis.benchmark import CPU, LeftOut, Meter
from relpos_mm.analysis.benchmark_steps import Work, on_route, pairs
from relpos_mm.data import MissingData
from relpos_mm.data.bdpq import Knobs, make_mini

CONFIG = "mini/cls_swin_t_relonly"


@pytest.fixture
def few_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_mini(
        tmp_path / "data/bdpq",
        knobs=Knobs(cls_train=8, cls_val=8, train_scenes=1, val_scenes=1),
        workers=1,
    )
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("few_pictures")
def test_a_training_step_and_an_evaluation_are_measured() -> None:
    found = list(pairs([CONFIG], batch_size=4))
    assert [pair.step for pair in found] == ["inference", "training"]
    row = Meter(1, 60, CPU).measure(found[1])
    assert row.size == CONFIG
    assert row.error < 1e-4
    assert min(row.ms, row.base_ms) > 0


@pytest.mark.usefixtures("few_pictures")
def test_steps_train_and_repeat() -> None:
    one, two = Work(CONFIG, 4), Work(CONFIG, 4)
    first = [work.training() for work in (one, two)]
    assert first[0] == first[1], "same weights, same batch, same random numbers"
    assert one.training() != first[0], "the optimiser has moved the weights"


def test_each_side_has_its_route_and_leaves_the_default() -> None:
    assert on_route(True, torch.get_float32_matmul_precision) == "medium"
    assert on_route(False, torch.get_float32_matmul_precision) == "highest"
    with pytest.raises(ZeroDivisionError):
        on_route(True, lambda: 1 / 0)
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.usefixtures("few_pictures")
def test_a_route_with_other_results_gets_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Work.training

    def coarse(self: Work) -> list[torch.Tensor]:
        off = 1.01 if torch.get_float32_matmul_precision() == "medium" else 1.0
        return [loss * off for loss in real(self)]

    monkeypatch.setattr(benchmark_steps.Work, "training", coarse)
    found = list(pairs([CONFIG], batch_size=4))
    assert len(found) == 2
    assert all(isinstance(one, LeftOut) and one.wrong for one in found)


def test_missing_data_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingData, match="data/bdpq"):
        Work(CONFIG)
    (left,) = pairs([CONFIG])
    assert left.what == f"whole steps of {CONFIG}"
    assert left.why == "its data are not there, see docs/data.md"
    assert not left.wrong
