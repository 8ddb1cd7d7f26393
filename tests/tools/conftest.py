"""A folder in which the tools run as in the repository, on a few pictures of the embedded data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from relpos_mm.data.bdpq import Knobs, make_mini

# Seven validation pictures: an odd number, which several processes must not count twice.
FEW = Knobs(cls_train=24, cls_val=7, train_scenes=6, val_scenes=7)


@dataclass
class Workspace:
    """Runs tools in a folder of their own."""

    path: Path
    root: Path

    def run(
        self, tool: str, *arguments: str | Path, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run ``tools/<tool>`` and return it with its combined output."""
        script = str(self.root / "tools" / tool)
        command = ["bash", script] if tool.endswith(".sh") else [sys.executable, script]
        return subprocess.run(
            [*command, *map(str, arguments)],
            cwd=self.path,
            env={**os.environ, "PYTHONPATH": str(self.root), "PYTHON": sys.executable, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def ok(self, tool: str, *arguments: str | Path, **env: str) -> str:
        """Run a tool that must succeed and return its output."""
        done = self.run(tool, *arguments, **env)
        assert done.returncode == 0, done.stdout[-4000:]
        return done.stdout

    def result(self, run_dir: str) -> dict[str, Any]:
        return json.loads((self.path / run_dir / "result.json").read_text())

    def losses(self, run_dir: str) -> list[tuple[int, float, float]]:
        """Return step, loss and learning rate of every logged iteration, in order of time."""
        files = sorted((self.path / run_dir).glob("*/vis_data/scalars.json"))
        rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return [(row["step"], row["loss"], row["lr"]) for row in rows if "loss" in row]


def mini_options(steps: int, seed: int = 1, **more: Any) -> list[str]:
    """Return the flags of a training of a few iterations with two loader processes."""
    options = {
        "train_cfg.max_iters": steps,
        "train_cfg.val_interval": steps,
        "default_hooks.logger.interval": 1,
        "default_hooks.checkpoint.interval": steps,
        "randomness.seed": seed,
        "train_dataloader.batch_size": 2,
        "train_dataloader.num_workers": 2,
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    return ["--cfg-options", *(f"{key}={value}" for key, value in options.items())]


@pytest.fixture(scope="session")
def few_pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "bdpq"
    make_mini(folder, knobs=FEW, workers=1)
    return folder


@pytest.fixture
def workspace(tmp_path: Path, few_pictures: Path, repo_root: Path) -> Workspace:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "bdpq").symlink_to(few_pictures)
    (tmp_path / "configs").symlink_to(repo_root / "configs")
    return Workspace(tmp_path, repo_root)


@pytest.fixture
def in_workspace(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """The workspace as this process's own directory, for tools called as functions."""
    monkeypatch.chdir(workspace.path)
    monkeypatch.setenv("LOCAL_RANK", "0")
    return workspace
