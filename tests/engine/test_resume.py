"""A run that was killed at any moment goes on as one that was not."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from mmengine.hooks import Hook, IterTimerHook
from mmengine.registry import DATASETS
from mmengine.runner import Runner
from torch import multiprocessing

from relpos_mm.engine.checked_runner import CheckedRunner
from relpos_mm.engine.checkpoints import latest_resumable, read_checkpoint
from relpos_mm.engine.curve import merge, read_rows

from .toys import ToyData, log_of, toy_runner

LOADED: list[int] = []
SCHEDULE = [
    {"type": "LinearLR", "start_factor": 0.1, "begin": 0, "end": 5, "by_epoch": False},
    {"type": "MultiStepLR", "milestones": [8], "by_epoch": False},
]


@DATASETS.register_module(force=True)
class NoisyData(ToyData):
    """Augments with all three generators, and notes what it is asked for."""

    metainfo: ClassVar = ToyData.metainfo

    def __getitem__(self, index: int) -> dict[str, Any]:
        LOADED.append(int(index))
        sample = super().__getitem__(index)
        factor = random.random() + np.random.rand() + torch.rand(())
        return {**sample, "inputs": sample["inputs"] * factor}


def runner_of(folder: Path, by_epoch: bool = False, **changes: Any) -> Runner:
    """Return a run of ten iterations that saves, validates and logs at every second one."""
    loader = {
        "batch_size": 2,
        "num_workers": 0,
        "sampler": {"type": "DefaultSampler" if by_epoch else "InfiniteSampler", "shuffle": True},
        "collate_fn": {"type": "default_collate"},
        "dataset": {"type": "NoisyData", "size": 4},
    }
    test = {**loader, "sampler": {"type": "DefaultSampler"}, "dataset": {"type": "ToyData"}}
    train = {"max_epochs": 5} if by_epoch else {"max_iters": 10}
    checkpoint = {
        "type": "SafeCheckpointHook",
        "interval": 1 if by_epoch else 2,
        "by_epoch": by_epoch,
        "save_best": "accuracy/top1",
        "rule": "greater",
        "max_keep_ckpts": 2,
    }
    arguments: dict[str, Any] = {
        "model": {"type": "ToyModel", "drop_path_rate": 0.3},
        "train_dataloader": loader,
        "val_dataloader": test,
        "train_cfg": {"by_epoch": by_epoch, **train, "val_interval": 1 if by_epoch else 2},
        "param_scheduler": SCHEDULE,
        "default_hooks": {
            "checkpoint": checkpoint,
            "param_scheduler": {"type": "ParamSchedulerHook"},
            "logger": {"type": "LoggerHook", "interval": 1},
        },
        "custom_hooks": [
            {"type": "StartReportHook"},
            {"type": "EMAHook", "momentum": 0.2},
            {"type": "ResultHook"},
        ],
        **changes,
    }
    return toy_runner(folder, runner_type=CheckedRunner, **arguments)


class Trace(Hook):
    """What every iteration saw."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, float, float]] = []

    def after_train_iter(self, runner: Runner, batch_idx: int, **more: Any) -> None:
        rate = runner.optim_wrapper.get_lr()["lr"][0]
        self.rows.append((runner.iter, rate, float(more["outputs"]["loss"].detach())))


def train(runner: Runner) -> list[tuple[int, float, float]]:
    runner.register_hook(trace := Trace(), priority="HIGHEST")
    runner.train()
    return trace.rows


def final(folder: Path, name: str) -> dict[str, Any]:
    content = read_checkpoint(folder / name)
    best = content["message_hub"]["runtime_info"]
    return {
        "weights": content["state_dict"],
        "ema": content["ema_state_dict"],
        "optimizer": content["optimizer"]["state"],
        "best": (best["best_score"], Path(best["best_ckpt"]).name),
    }


def assert_equal(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif torch.is_tensor(one):
        assert torch.equal(one, other)
    else:
        assert one == other


class Kill(Hook):
    """``kill -9`` in the middle of a step: ``at`` counts how often the moment has come."""

    def __init__(self, moment: str, at: int) -> None:
        self.moment, self.left = moment, at

    def _now(self, moment: str) -> None:
        self.left -= moment == self.moment
        if moment == self.moment and self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def before_train_iter(self, *_: Any, **__: Any) -> None:
        self._now("training")

    def before_val_iter(self, *_: Any, **__: Any) -> None:
        self._now("validating")


def killed(folder: Path, moment: str, at: int, **options: Any) -> None:
    """Run in a process of its own and kill it there."""

    def work() -> None:
        runner = runner_of(folder, **options)
        kill = Kill(moment, at)
        runner.register_hook(kill)
        if moment in ("writing", "renaming"):
            call = {"writing": "fsync", "renaming": "replace"}[moment]
            original = getattr(os, call)

            def patched(*arguments: Any) -> None:
                if call == "fsync" or ".pth" in str(arguments[1]):
                    kill._now(moment)
                original(*arguments)

            setattr(os, call, patched)
        runner.train()

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def resumed(folder: Path, **options: Any) -> Runner:
    source = latest_resumable(folder)
    return runner_of(folder, resume=source is not None, load_from=source and str(source), **options)


@pytest.fixture(scope="module", params=[False, True], ids=["iterations", "epochs"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("whole")
    LOADED.clear()
    rows = train(runner_of(folder, by_epoch=request.param))
    return folder, request.param, rows, list(LOADED)


@pytest.mark.train
@pytest.mark.parametrize(
    ("moment", "at"),
    [("training", 6), ("validating", 6), ("validating", 18), ("writing", 4), ("renaming", 5)],
)
def test_b045_killed_at_any_moment(
    whole: Any, tmp_path: Path, moment: str, at: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """B041, B043, B045, B117: order of samples, rates, weights, averages, best file and curve."""
    folder, by_epoch, rows, loaded = whole
    killed(tmp_path, moment, at, by_epoch=by_epoch)
    LOADED.clear()
    again = train(resumed(tmp_path, by_epoch=by_epoch))
    assert again == rows[len(rows) - len(again) :]
    assert loaded[len(loaded) - len(LOADED) :] == LOADED
    assert len(LOADED) == 2 * len(again)  # nothing was loaded to be thrown away
    name = "epoch_5.pth" if by_epoch else "iter_10.pth"
    assert_equal(final(tmp_path, name), final(folder, name))
    assert sorted(p.name for p in tmp_path.glob("*.pth")) == sorted(
        p.name for p in folder.glob("*.pth")
    )
    result, expected = (
        json.loads((one / "result.json").read_text())["metrics"] for one in (tmp_path, folder)
    )
    assert result == expected
    curve = [row["step"] for row in read_rows(tmp_path / "curve.json") if "loss" in row]
    assert curve == list(range(1, 11))


def test_b043_the_rate_trace_is_bitwise_that_of_the_schedule(whole: Any) -> None:
    rates = [rate for _, rate, _ in whole[2]]
    assert rates[0] == pytest.approx(1e-4)
    assert rates[5] == pytest.approx(1e-3)
    assert rates[-1] == pytest.approx(1e-4)


def test_b085_averaged_weights_are_the_tested_ones(whole: Any, tmp_path: Path) -> None:
    """The last validation's score is that of a test of the saved file, with and without EMA."""
    folder, by_epoch, *_ = whole
    path = str(folder / ("epoch_5.pth" if by_epoch else "iter_10.pth"))
    validated = json.loads((folder / "result.json").read_text())["metrics"]["top1_pct"]
    for hooks in ([{"type": "EMAHook", "momentum": 0.2}], []):
        tester = runner_of(tmp_path / str(len(hooks)), load_from=path, custom_hooks=hooks)
        assert tester.test()["accuracy/top1"] == validated


def test_b112_loader_processes_change_nothing(tmp_path: Path) -> None:
    """The numbers of a sample come from its place in the stream."""
    loader = runner_of(tmp_path / "config")._train_dataloader
    one = train(runner_of(tmp_path / "a", train_dataloader={**loader, "num_workers": 0}))
    two = train(runner_of(tmp_path / "b", train_dataloader={**loader, "num_workers": 2}))
    other = train(runner_of(tmp_path / "c", randomness={"seed": 4}))
    assert one == two
    assert [loss for *_, loss in one] != [loss for *_, loss in other]


def test_b045_a_cut_note_or_an_unfinished_file_is_no_obstacle(whole: Any, tmp_path: Path) -> None:
    folder, by_epoch, *_ = whole
    name = "epoch_5.pth" if by_epoch else "iter_10.pth"
    (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / f".{name}.part").write_bytes(b"half")
    (tmp_path / "last_checkpoint").write_text("")
    assert latest_resumable(tmp_path) == tmp_path / name


def test_the_former_best_file_stays_until_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the score rising, at every moment one best file can be read."""
    scores = iter([1.0, 2.0, 3.0, 4.0, 5.0])
    monkeypatch.setattr(
        "tests.engine.toys.ToyMetric.compute_metrics",
        lambda self, results: {"accuracy/top1": next(scores)},
    )
    runner = runner_of(tmp_path, custom_hooks=[])
    save, seen = runner.save_checkpoint, []

    def spy(*args: Any, **kwargs: Any) -> None:
        seen.append(len(list(tmp_path.glob("best_*.pth"))))
        save(*args, **kwargs)

    runner.save_checkpoint = spy
    runner.train()
    assert seen[0] == 0
    assert min(seen[2:]) >= 1
    assert [p.name for p in tmp_path.glob("best_*.pth")] == ["best_accuracy_top1_iter_10.pth"]


def test_b117_merged_curves_rise_over_restarts() -> None:
    """What was logged behind the checkpoint of the next start is replaced."""
    first: list[dict[str, Any]] = [{"step": s, "loss": 1.0} for s in (1, 2, 3, 4)]
    first.insert(2, {"step": 1, "miou": 0.1})
    second = [{"step": s, "loss": 2.0} for s in (3, 4, 5)]
    third = [{"step": 6, "loss": 3.0}, {"step": 2, "miou": 0.2}]
    rows = merge([*first, *second, *third])
    assert [(r["step"], r["loss"]) for r in rows if "loss" in r] == [
        *((1, 1.0), (2, 1.0), (3, 2.0), (4, 2.0), (5, 2.0), (6, 3.0)),
    ]
    assert [r["step"] for r in rows if "miou" in r] == [1, 2]
    assert merge([*second, *third, *first]) == first  # a start from the beginning


def test_b117_the_remaining_time_counts_this_session_alone(whole: Any, tmp_path: Path) -> None:
    by_epoch = whole[1]
    killed(tmp_path, "training", 6, by_epoch=by_epoch)
    runner = resumed(tmp_path, by_epoch=by_epoch)
    train(runner)
    timer = next(hook for hook in runner.hooks if isinstance(hook, IterTimerHook))
    assert timer.start_iter == 4
    assert "eta" in log_of(runner)
