"""What may differ between a checkpoint and the run that goes on from it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import Config

from relpos_mm.engine import UserError
from relpos_mm.engine.checkpoints import read_checkpoint
from relpos_mm.engine.resuming import (
    ResumedRateHook,
    continue_as_before,
    kept_settings,
    run_settings,
)

from .toys import log_of, toy_runner


def config(by_epoch: bool = False, **changes: Any) -> Config:
    cfg = Config(
        {
            "train_dataloader": {"batch_size": 2},
            "train_cfg": {"by_epoch": by_epoch},
            "optim_wrapper": {"optimizer": {"lr": 0.1}},
            "auto_scale_lr": {"enable": False, "base_batch_size": 2},
        }
    )
    cfg.merge_from_dict(changes)
    return cfg


def meta(**changes: Any) -> dict[str, Any]:
    return {"seed": 7, "run": run_settings(config(**changes))}


def test_an_equal_run_takes_the_seed() -> None:
    cfg = config()
    assert continue_as_before(cfg, "a.pth", meta(), allowed=False) is None
    assert cfg.randomness.seed == 7
    assert continue_as_before(config(), "old.pth", {}, allowed=False) is None  # says nothing


def test_another_seed_is_refused() -> None:
    cfg = config(**{"randomness.seed": 8})
    with pytest.raises(UserError, match=r"a\.pth.*randomness\.seed=7, the config says 8"):
        continue_as_before(cfg, "a.pth", meta(), allowed=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"optim_wrapper.optimizer.lr": 0.2}, r"lr \(scaled\) 0\.1 -> 0\.2.*multiplied by 2"),
        ({"train_dataloader.batch_size": 4}, r"batch_size 2 -> 4.*multiplied by 1\."),
        ({"optim_wrapper.accumulative_counts": 2}, r"accumulative_counts 1 -> 2"),
    ],
)
def test_b043_changes_are_refused_with_both_values(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        continue_as_before(config(**change), "a.pth", meta(), allowed=False)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"param_scheduler": [{"type": "PolyLR", "end": 9}]}, "param_scheduler is .*PolyLR"),
        ({"optim_wrapper.optimizer.weight_decay": 0.1}, "weight_decay.*0.1"),
    ],
)
def test_b043_what_the_checkpoint_decides_is_told(
    change: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Optimiser and schedule come back with their settings, so the config's would be ignored."""
    lines: list[str] = []
    old = {"kept": kept_settings(config())}
    log = "relpos_mm.engine.resuming.print_log"
    monkeypatch.setattr(log, lambda text, **_: lines.append(text))
    assert continue_as_before(config(), "a.pth", old, allowed=False) is None
    assert lines == []
    assert continue_as_before(config(**change), "a.pth", old, allowed=False) is None
    (line,) = lines
    assert re.search(said, line)
    assert "goes on with the checkpoint's" in line


def test_a_resumed_run_is_filled_whole(tmp_path: Path) -> None:
    toy_runner(tmp_path / "a").train()
    path = tmp_path / "a" / "epoch_2.pth"
    content = read_checkpoint(path)
    del content["state_dict"]["head.bias"]
    torch.save(content, path)
    again = toy_runner(tmp_path / "b", resume=True, load_from=str(path))
    with pytest.raises(UserError, match=r"1 of 42 tensors are missing.*head\.bias"):
        again.train()


def test_b043_the_flag_scales_the_rate_to_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    scaled = {"auto_scale_lr.enable": True, "train_dataloader.batch_size": 4}
    assert continue_as_before(config(**scaled), "a.pth", meta(), allowed=True) == 2.0
    monkeypatch.setenv("WORLD_SIZE", "4")
    cfg = config(launcher="pytorch")
    with pytest.raises(UserError, match="number of processes 1 -> 4"):
        continue_as_before(cfg, "a.pth", meta(), allowed=False)
    assert continue_as_before(cfg, "a.pth", meta(), allowed=True) == 1.0


def test_epochs_of_another_length_are_always_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = {"train_dataloader.batch_size": 4}
    with pytest.raises(UserError, match="another number of iterations"):
        continue_as_before(config(True, **changed), "a.pth", meta(), allowed=True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    same = config(True, launcher="pytorch", **{"train_dataloader.batch_size": 1})
    assert continue_as_before(same, "a.pth", meta(), allowed=True) == 1.0


def test_b043_the_whole_schedule_is_scaled(tmp_path: Path) -> None:
    schedule = [
        {"type": "LinearLR", "start_factor": 0.1, "begin": 0, "end": 6, "by_epoch": False},
        {"type": "MultiStepLR", "milestones": [7], "by_epoch": False},
    ]
    hooks = {
        "checkpoint": {"type": "SafeCheckpointHook", "interval": 1},
        "param_scheduler": {"type": "ParamSchedulerHook"},
    }
    common = {"param_scheduler": schedule, "default_hooks": hooks}
    first = toy_runner(tmp_path / "a", **common)
    rates = _rates(first)
    path = str(tmp_path / "a" / "epoch_1.pth")
    again = toy_runner(tmp_path / "b", **common, resume=True, load_from=path)
    again.register_hook(ResumedRateHook(2.0))
    assert _rates(again) == pytest.approx([2 * rate for rate in rates[4:]], rel=1e-12)
    assert "learning rates times 2" in log_of(again)


def _rates(runner: Any) -> list[float]:
    rates = []

    def spy(*args: Any, **kwargs: Any) -> Any:
        rates.append(runner.optim_wrapper.get_lr()["lr"][0])
        return original(*args, **kwargs)

    original, runner.model.train_step = runner.model.train_step, spy
    runner.train()
    return rates


def test_b021_own_files_are_plain_data_for_torch_itself(tmp_path: Path) -> None:
    """The weights that a test or a transfer needs load with torch's safe default."""
    settings = config()
    toy_runner(tmp_path, cfg=settings).train()
    content = read_checkpoint(tmp_path / "epoch_2.pth")
    torch.save({"state_dict": content["state_dict"], "meta": content["meta"]}, tmp_path / "w.pth")
    loaded = torch.load(tmp_path / "w.pth", weights_only=True)
    assert loaded["meta"]["run"] == run_settings(settings)
