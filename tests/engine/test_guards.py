"""A run with NaN stops by name and keeps its good checkpoint; parts that do not learn are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.structures import BaseDataElement
from torch.nn.parallel import DistributedDataParallel

from relpos_mm.engine import NonFiniteLossHook, UnusedParameterHook, UserError
from relpos_mm.engine.nonfinite import _pictures

from .toys import ToyModel, log_of, toy_runner

GUARD = [{"type": "NonFiniteLossHook"}]


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.pth"))


def test_b061_nan_loss_stops_and_keeps_the_good_checkpoint(tmp_path: Path) -> None:
    model = {"type": "ToyModel", "poison_at": 6}
    runner = toy_runner(tmp_path, model=model, custom_hooks=GUARD)
    with pytest.raises(UserError) as error:
        runner.train()
    message = str(error.value)
    assert "iteration 7: loss_size = nan" in message  # the term, not the sum
    assert "lr 0.001" in message
    assert "epoch_1.pth" in message
    assert checkpoints(tmp_path) == ["epoch_1.pth"]
    saved = torch.load(tmp_path / "epoch_1.pth", weights_only=False)["state_dict"]
    assert all(torch.isfinite(tensor).all() for tensor in saved.values())
    assert (tmp_path / "last_checkpoint").read_text().endswith("epoch_1.pth")


@pytest.mark.parametrize("hook", ["SafeCheckpointHook", "CheckpointHook"])
def test_b061_nan_weights_are_never_saved(tmp_path: Path, hook: str) -> None:
    checkpoint = {"type": hook, "interval": 1}
    runner = toy_runner(tmp_path, custom_hooks=GUARD, default_hooks={"checkpoint": checkpoint})
    runner.register_hook(_PoisonWeights(), priority="NORMAL")
    with pytest.raises(UserError, match=r"Weights are not finite.*head\.bias.*epoch_1\.pth"):
        runner.train()
    assert checkpoints(tmp_path) == ["epoch_1.pth"]


def test_the_only_checkpoint_survives_a_refused_save(tmp_path: Path) -> None:
    checkpoint = {"type": "SafeCheckpointHook", "interval": 1, "max_keep_ckpts": 1}
    runner = toy_runner(tmp_path, custom_hooks=GUARD, default_hooks={"checkpoint": checkpoint})
    runner.register_hook(_PoisonWeights(), priority="NORMAL")
    with pytest.raises(UserError):
        runner.train()
    assert checkpoints(tmp_path) == ["epoch_1.pth"]


def test_patience_counts_iterations_in_a_row(tmp_path: Path) -> None:
    runner = toy_runner(tmp_path, custom_hooks=[])
    runner.train()
    hook = NonFiniteLossHook(patience=2)
    hook.after_train_iter(runner, 0, None, {"loss": float("inf")})
    hook.after_train_iter(runner, 1, None, {"loss": 1.0})
    hook.after_train_iter(runner, 2, None, {"loss": float("inf")})
    with pytest.raises(UserError, match="loss = inf"):
        hook.after_train_iter(runner, 3, None, {"loss": torch.tensor(float("inf"))})


def test_pictures_of_every_batch_form_are_named() -> None:
    samples = [BaseDataElement(metainfo={"img_path": f"{i}.jpg"}) for i in range(3)]
    assert _pictures({"inputs": torch.ones(3), "data_samples": samples}) == (
        "pictures: 0.jpg, 1.jpg, 2.jpg"
    )
    assert _pictures([{"data_samples": sample} for sample in samples], limit=1) == (
        "pictures: 0.jpg and 2 more"
    )
    assert _pictures({"inputs": torch.ones(3)}) == "pictures unknown"


def test_b039_unused_parameters_are_named_once(tmp_path: Path) -> None:
    hooks = [{"type": "UnusedParameterHook", "iterations": 2}]
    runner = toy_runner(tmp_path, model={"type": "ToyModel", "unused": True}, custom_hooks=hooks)
    runner.train()
    lines = [line for line in log_of(runner).splitlines() if "got no gradient" in line]
    assert len(lines) == 1
    assert "2 of " in lines[0]
    assert lines[0].endswith("spare.bias, spare.weight")


def test_nothing_is_said_when_everything_learns(tmp_path: Path) -> None:
    runner = toy_runner(tmp_path, custom_hooks=[{"type": "UnusedParameterHook"}])
    runner.train()
    assert "got no gradient" not in log_of(runner)


def test_b038_several_processes_stop_with_names(tmp_path: Path, single_process_group: None) -> None:
    model = ToyModel(unused=True)
    runner = toy_runner(tmp_path, model=ToyModel())
    runner.model = DistributedDataParallel(model)
    hook = UnusedParameterHook()
    hook.before_train(runner)
    for name, parameter in model.named_parameters():
        if "spare" not in name:
            parameter.sum().backward()
    with pytest.raises(UserError, match=r"spare\.weight.*find_unused_parameters"):
        hook.after_train_iter(runner, 0)


class _PoisonWeights(NonFiniteLossHook):
    """Make a weight NaN in the last iteration, where no loss shows it any more."""

    def after_train_iter(self, runner: Any, *args: Any, **kwargs: Any) -> None:
        if runner.iter == 7:
            runner.model.head.bias.data[0] = float("nan")

    def before_save_checkpoint(self, runner: Any, checkpoint: Any) -> None:
        pass
