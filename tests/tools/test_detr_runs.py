"""DETR trains, is evaluated and predicts with the same tools as the other models."""

from __future__ import annotations

import pytest

from .conftest import Workspace, mini_options

pytestmark = pytest.mark.train

CONFIG = "configs/mini/detr_r50_irpe_qkv.py"


def test_detr_trains_and_evaluates(workspace: Workspace) -> None:
    steps = 30
    options = mini_options(steps, train_dataloader__batch_size=4, param_scheduler__0__end=5)
    log = workspace.ok("train.py", CONFIG, "--work-dir", "a", *options)
    assert "irpe_qkv (Sinusoid2d, ContextualRpe): 3 modules" in log
    assert "got no gradient" not in log
    losses = [loss for _, loss, _ in workspace.losses("a")]
    assert len(losses) == steps
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    checkpoint = (workspace.path / "a" / "last_checkpoint").read_text()
    workspace.ok("test.py", CONFIG, checkpoint, "--work-dir", "t", "--show-dir", "shown")
    trained, tested = workspace.result("a"), workspace.result("t")
    assert tested["metrics"] == trained["metrics"]
    assert tested["variant"] == "irpe_qkv"
    assert "box_ap" in tested["metrics"]
    picture = next((workspace.path / "data" / "bdpq" / "img" / "val").iterdir())
    workspace.ok("infer.py", CONFIG, checkpoint, picture, "--out-dir", "out")


def test_converted_weights_are_the_same_detector(workspace: Workspace) -> None:
    """Out into the public layout and back: the same result."""
    workspace.ok("train.py", CONFIG, "--work-dir", "a", *mini_options(2))
    checkpoint = (workspace.path / "a" / "last_checkpoint").read_text()
    workspace.ok("transfer.py", checkpoint, "public.pth", "--to", "official")
    workspace.ok("transfer.py", "public.pth", "back.pth", "--to", "relpos")
    workspace.ok("test.py", CONFIG, "back.pth", "--work-dir", "t")
    assert workspace.result("t")["metrics"] == workspace.result("a")["metrics"]
