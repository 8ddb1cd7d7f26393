"""Every encoding trains in the mini tasks and survives saving, loading, transfer, test and DDP.

In CI one encoding goes through each task; all encodings in all tasks run nightly.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from .conftest import Workspace, mini_options

SLUGS = list(
    runpy.run_path(
        str(Path(__file__).resolve().parents[2] / "configs" / "_base_" / "positions.py")
    )["positions"]
)
TASKS = ("cls", "cascade", "upernet")
STEPS = 20
OPTIONS = {
    "default_hooks__logger__interval": STEPS,
    "train_dataloader__num_workers": 0,
    "train_dataloader__persistent_workers": False,
}


def train(workspace: Workspace, config: str, out: str, *options: str) -> None:
    flags = ["--work-dir", out, *mini_options(STEPS, **OPTIONS), *options]
    log = workspace.ok("train.py", config, *flags)
    assert Path(config).stem.partition("_swin_t_")[2] in log  # the report names the encoding
    assert "got no gradient" not in log


def check_saved(workspace: Workspace, config: str, out: str) -> None:
    """The saved file alone gives the numbers that the training measured."""
    checkpoint = workspace.path / out / f"iter_{STEPS}.pth"
    workspace.ok("test.py", config, checkpoint, "--work-dir", f"{out}_test")
    assert workspace.result(f"{out}_test")["metrics"] == workspace.result(out)["metrics"]


@pytest.mark.train
@pytest.mark.parametrize("slug", SLUGS[2::5])  # one for each task
def test_variant_in_one_task(workspace: Workspace, slug: str) -> None:
    config = f"configs/mini/{TASKS[SLUGS.index(slug) % 3]}_swin_t_{slug}.py"
    train(workspace, config, "run")
    check_saved(workspace, config, "run")


@pytest.mark.nightly
@pytest.mark.parametrize("slug", SLUGS)
def test_variant_in_every_task(workspace: Workspace, slug: str) -> None:
    """Pre-train, transfer to both dense tasks, train on, test; two processes on the last."""
    for task in TASKS:
        config = f"configs/mini/{task}_swin_t_{slug}.py"
        options = []
        if task != "cls":
            source, start = f"cls/iter_{STEPS}.pth", f"{task}_start.pth"
            assert " 0 problems" in workspace.ok("transfer.py", source, start, "--config", config)
            options = [f"load_from={start}"]
        train(workspace, config, task, *options)
        check_saved(workspace, config, task)
    workspace.ok("dist_train.sh", config, "2", "--work-dir", "two", *mini_options(2, **OPTIONS))
    assert workspace.result("two")["cost"]["processes"] == 2
