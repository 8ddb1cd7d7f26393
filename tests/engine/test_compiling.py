"""The config key ``compile_backbone``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from relpos_mm.engine.checked_runner import CheckedRunner
from relpos_mm.engine.compiling import compile_backbone
from relpos_mm.engine.errors import UserError

from .toys import ToyModel, log_of, toy_runner


@pytest.fixture(autouse=True)
def no_graphs_of_other_tests() -> None:
    torch.compiler.reset()


def test_a_run_with_the_key_learns_the_same(tmp_path: Path) -> None:
    """Compiled in name: torch's "eager" backend runs the traced graphs."""
    losses = []
    for name, cfg in (("off", {}), ("on", {"compile_backbone": {"backend": "eager"}})):
        runner = toy_runner(tmp_path / name, CheckedRunner, cfg=cfg)
        runner.train()
        losses.append(runner.message_hub.get_scalar("train/loss").data[0])
        states = [bool(stage._compiled_call_impl) for stage in runner.model.backbone.stages]
        assert states == [name == "on"] * 2
        said = "backbone: compiled in its first call (dynamic=True, backend='eager')"
        assert (said in log_of(runner)) == (name == "on")
    torch.testing.assert_close(*map(torch.as_tensor, losses))


def test_names_stay() -> None:
    model = ToyModel()
    names = list(model.state_dict())
    compile_backbone(model, True)
    assert list(model.state_dict()) == names


@pytest.mark.parametrize(
    ("model", "setting", "message"),
    [
        (ToyModel(), "yes", "must be True, False or a dict of torch.compile's arguments, got 'ye"),
        (ToyModel(), {"backend": "fast"}, "torch.compile refuses it"),
        (ToyModel(), {"speed": 2}, "torch.compile refuses it"),
        (nn.Linear(2, 2), True, "Linear has no `backbone` to compile"),
    ],
)
def test_settings_that_mean_nothing(model: nn.Module, setting: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        compile_backbone(model, setting)
