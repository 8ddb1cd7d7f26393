"""NaN in an evaluation is an error, not a score of 0."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from relpos_mm.engine import UserError
from relpos_mm.engine.output_watch import OutputWatch

from .toys import ToyModel, toy_runner


@pytest.mark.parametrize("part", ["norm", "head"])
def test_b061_the_part_and_the_mode_are_named(tmp_path: Path, part: str) -> None:
    runner = toy_runner(tmp_path, custom_hooks=[{"type": "NonFiniteLossHook"}])
    getattr(runner.model, part).bias.data.fill_(float("nan"))
    with pytest.raises(UserError, match=f"^{part} returns NaN in the test evaluation"):
        runner.test()


def test_infinite_scores_and_finite_models_pass() -> None:
    model = ToyModel().eval()
    watch = OutputWatch(model)
    batch = {"inputs": torch.zeros(1, 3, 16, 16), "label": torch.zeros(1, dtype=torch.long)}
    model(**batch)
    assert watch.first() is None
    model.head.bias.data[0] = float("inf")
    model(**batch)
    assert watch.first() is None
    model.head.bias.data[0] = float("nan")
    watch.close()
    model(**batch)
    assert watch.first() is None
