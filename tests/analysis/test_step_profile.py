"""The profile of a step: parts add up to it, and the page shows the record."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from relpos_mm.analysis import step_profile
from relpos_mm.analysis.step_profile import FULL_SIZE, MINI, PAGE, Parts, mini
from relpos_mm.analysis.synthetic import synthetic_batch
from relpos_mm.data.bdpq import Knobs, make_mini


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that moves when told to."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(step_profile.time, "process_time", lambda: clock.now)
    return clock


def spend(clock: SimpleNamespace, seconds: float) -> None:
    clock.now += seconds


def test_time_inside_another_part_counts_once(clock: SimpleNamespace) -> None:
    inner = SimpleNamespace(forward=lambda: spend(clock, 2))

    def step() -> None:
        spend(clock, 1)
        inner.forward()

    outer = SimpleNamespace(step=step)
    parts = Parts()
    parts.watch(inner, "forward", "backbone")
    parts.watch(outer, "step", "rest")
    for _ in range(3):
        outer.step()
        parts.end_step(whole=3.5, reading=4)
    ms = {"backbone": 2000, "rest": 1000, "hooks and logging": 500, "reading": 4000}
    assert parts.medians() == ms


def test_a_part_that_fails_leaves_the_others_right(clock: SimpleNamespace) -> None:
    def broken() -> None:
        spend(clock, 1)
        raise ZeroDivisionError

    work = SimpleNamespace(broken=broken, fine=lambda: spend(clock, 1))
    parts = Parts()
    parts.watch(work, "broken", "a")
    parts.watch(work, "fine", "b")
    with pytest.raises(ZeroDivisionError):
        work.broken()
    work.fine()
    parts.end_step()
    assert parts.steps == [{"a": 1, "b": 1}]


def test_a_training_has_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    knobs = Knobs(cls_train=8, cls_val=8, train_scenes=1, val_scenes=1)
    make_mini(tmp_path / "data/bdpq", knobs=knobs, workers=1)
    monkeypatch.chdir(tmp_path)
    parts, pictures = mini(MINI[0], 3, **{"train_dataloader.batch_size": 4})
    assert pictures == 4
    assert len(parts.steps) == 3
    assert {"reading", "data_preprocessor", "backbone", "head", "backward pass"} <= set(
        parts.medians()
    )
    assert min(parts.medians().values()) >= 0


@pytest.mark.parametrize(("scope", "size"), [("mmdet", (800, 1333)), ("mmseg", (512, 512))])
def test_synthetic_pictures(scope: str, size: tuple[int, int]) -> None:
    batch = synthetic_batch(scope)
    for picture, sample in zip(batch["inputs"], batch["data_samples"], strict=True):
        assert (picture.dtype, *picture.shape) == (torch.uint8, 3, *size)
        assert tuple(sample.img_shape) == size
    with pytest.raises(ValueError, match="mmrotate"):
        synthetic_batch("mmrotate")


def test_the_page_shows_the_record() -> None:
    assert [one["config"] for one in PAGE.rows()] == [*FULL_SIZE, *MINI]
