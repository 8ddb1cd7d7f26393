"""The start report tells batch, rate, frozen part and encoding, and warns where they do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relpos_mm.engine import UserError

from .toys import ABSREL, ToyModel, log_of, toy_runner

NO_EPOCH = {"by_epoch": True, "max_epochs": 0}


def start_log(tmp_path: Path, **changes: Any) -> str:
    runner = toy_runner(tmp_path, train_cfg=NO_EPOCH, **changes)
    runner.train()
    return log_of(runner)


def test_everything_is_told_with_counts(tmp_path: Path) -> None:
    model = ToyModel(ABSREL, frozen_stages=1)
    total = sum(p.numel() for p in model.parameters())
    frozen = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    assert 0 < frozen < total
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    tables = sum("position_bias_table" in name for name in trained)
    log = start_log(tmp_path, model=model)
    report = log[log.index("Start of the run") :]
    for line in (
        "  train                ToyData, 8 pictures, 2 classes",
        "  batch                2 = 2 x 1 process(es)",
        "  lr                   0.001 (as in the config)",
        f"  frozen               {frozen:,} of {total:,} parameters",
        "  encoding             absrel (AbsoluteTable, RelativeBias): 3 modules, 155 parameters",
        "  seed                 3",
    ):
        assert line + "\n" in report
    decay = f"weight decay on {len(trained) - tables} tensors and none on {tables}"
    assert f"AdamW, float32, {decay}" in report


def test_b075_another_batch_than_the_recipes_is_warned_about(tmp_path: Path) -> None:
    log = start_log(tmp_path, auto_scale_lr={"base_batch_size": 16})
    assert "2 = 2 x 1 process(es); recipe 16" in log
    assert "WARNING - The learning rate belongs to a batch of 16, this run has 2" in log
    assert "multiply it by 0.125" in log


def test_b075_scaling_is_applied_once_and_told(tmp_path: Path) -> None:
    scale = {"base_batch_size": 16, "enable": True}
    runner = toy_runner(tmp_path, train_cfg=NO_EPOCH, auto_scale_lr=scale)
    runner.train()
    assert runner.optim_wrapper.get_lr()["lr"][0] == pytest.approx(0.001 * 2 / 16)
    assert "0.000125 (scaled by 0.125)" in log_of(runner)
    assert "belongs to a batch" not in log_of(runner)


def test_accumulation_counts_into_the_batch(tmp_path: Path) -> None:
    wrapper = {
        "constructor": "PositionOptimConstructor",
        "optimizer": {"type": "SGD", "lr": 0.1},
        "accumulative_counts": 4,
    }
    scale = {"base_batch_size": 8, "enable": True}
    log = start_log(tmp_path, optim_wrapper=wrapper, auto_scale_lr=scale)
    assert "8 = 2 x 1 process(es) x 4 accumulated; recipe 8" in log
    assert "not the accumulation of 4" in log


def test_an_empty_data_set_is_refused(tmp_path: Path) -> None:
    loader = {
        "batch_size": 2,
        "num_workers": 0,
        "sampler": {"type": "DefaultSampler", "shuffle": False},
        "dataset": {"type": "ToyData", "size": 0},
    }
    with pytest.raises(UserError, match="val data set is empty: ToyData"):
        start_log(tmp_path, val_dataloader=loader)


def test_b043_resume_continues_the_rate_and_reports_a_changed_one(tmp_path: Path) -> None:
    schedule = {"type": "LinearLR", "start_factor": 0.1, "begin": 0, "end": 8, "by_epoch": False}
    hooks = {
        "checkpoint": {"type": "SafeCheckpointHook"},
        "param_scheduler": {"type": "ParamSchedulerHook"},
    }
    common = {"param_scheduler": schedule, "default_hooks": hooks}
    whole = _rates(toy_runner(tmp_path / "whole", **common))
    _rates(toy_runner(tmp_path / "half", **common, train_cfg={"by_epoch": True, "max_epochs": 1}))
    changed = {
        "constructor": "PositionOptimConstructor",
        "optimizer": {"type": "AdamW", "lr": 0.5, "weight_decay": 0.05},
    }
    path = str(tmp_path / "half" / "epoch_1.pth")
    resumed = toy_runner(
        tmp_path / "rest", **common, optim_wrapper=changed, resume=True, load_from=path
    )
    assert _rates(resumed) == whole[4:]
    assert "lr 0.5 is NOT used; training goes on with 0.001" in log_of(resumed)


def _rates(runner: Any) -> list[float]:
    rates = []
    step = runner.train_loop.run_iter

    def spy(*args: Any) -> None:
        rates.append(runner.optim_wrapper.get_lr()["lr"][0])
        step(*args)

    runner.train_loop.run_iter = spy
    runner.train()
    return rates
