"""The suite of cells side by side: who runs when, what is added up, and that all of them end."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from relpos_mm.analysis import benchmark_cells
from relpos_mm.analysis.benchmark import LeftOut
from relpos_mm.analysis.benchmark_cells import Scaling, counts, scaling, scalings
from relpos_mm.data.bdpq import Knobs, make_mini

CONFIG = "mini/cls_swin_t_relonly"


@pytest.mark.parametrize(
    ("cores", "expected"), [(1, []), (2, [2]), (4, [2, 4]), (6, [2, 4, 6]), (16, [2, 4, 8, 16])]
)
def test_processes_up_to_the_cores(cores: int, expected: list[int]) -> None:
    assert counts(cores) == expected


def test_ratios_are_taken_turn_by_turn() -> None:
    found = scaling(CONFIG, 2, [(1.0, 2.0), (4.0, 6.0), (2.0, 3.8)])
    assert (found.alone, found.together, found.times) == (2.0, 3.8, 1.9)
    assert found.met
    assert not scaling(CONFIG, 2, [(1.0, 1.7)]).met


def test_one_core_has_nothing_to_compare() -> None:
    (left,) = scalings([CONFIG], [], rounds=1, seconds=1)
    assert isinstance(left, LeftOut)
    assert not left.wrong


def test_missing_data_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (left,) = scalings([CONFIG], [2], rounds=1, seconds=1)
    assert isinstance(left, LeftOut)
    assert left.why == "its data are not there, see docs/data.md"


@pytest.mark.train
def test_processes_train_side_by_side_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_mini(
        tmp_path / "data/bdpq",
        knobs=Knobs(cls_train=8, cls_val=8, train_scenes=1, val_scenes=1),
        workers=1,
    )
    monkeypatch.chdir(tmp_path)
    asked: list[int] = []
    real = benchmark_cells._steps_per_s
    monkeypatch.setattr(
        benchmark_cells,
        "_steps_per_s",
        lambda cells, seconds: asked.append(len(cells)) or real(cells, seconds),
    )
    (found,) = scalings([CONFIG], [2], rounds=2, seconds=0.1, batch_size=4)
    assert isinstance(found, Scaling)
    assert asked == [1, 2, 1, 2]
    assert found.alone > 0
    assert found.together > 0
    assert not multiprocessing.active_children()


@pytest.mark.train
def test_a_process_that_dies_ends_the_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(benchmark_cells, "require_data", lambda cfg, parts: None)
    with pytest.raises(EOFError):
        list(scalings([CONFIG], [2], rounds=1, seconds=0.1))
    assert not multiprocessing.active_children()
