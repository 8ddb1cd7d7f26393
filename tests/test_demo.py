"""The demo's chain of tools, with trainings of two iterations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from relpos_mm.demo import Demo
from relpos_mm.engine.errors import UserError

SHORT = (
    "train_cfg.max_iters=2",
    "train_cfg.val_interval=2",
    "default_hooks.checkpoint.interval=2",
)


@pytest.mark.train
@pytest.mark.parametrize(
    ("task", "dense", "metrics"),
    [
        ("detection", "cascade", {"box_ap", "mask_ap"}),
        ("segmentation", "upernet", {"miou_pct"}),
    ],
)
def test_demo_runs_every_step(
    repo_root: Path, tmp_path: Path, task: str, dense: str, metrics: set[str]
) -> None:
    command = [sys.executable, "tools/demo.py", "--task", task, "--work-dir", str(tmp_path)]
    command += ["--record", str(tmp_path / "record"), "--cfg-options", *SHORT]
    done = subprocess.run(command, cwd=repo_root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    record = json.loads((tmp_path / "record" / f"{task}.json").read_text())
    assert list(record) == ["classifier", dense, f"{dense}_scratch"]
    assert metrics <= record[dense]["metrics"].keys()
    assert record[dense]["data_sha256"] == record["classifier"]["data_sha256"]
    assert (tmp_path / f"{dense}.png").stat().st_size > 10_000
    assert f"load_from={tmp_path}/classifier_to_{dense}.pth" in done.stdout


def test_failed_step_names_its_log(tmp_path: Path) -> None:
    demo = Demo("detection", "relonly", tmp_path)
    with pytest.raises(UserError, match=r"step 'broken' failed, its log is .*broken\.log"):
        demo._tool("broken", "data.py", "no-such-command")
    assert (tmp_path / "logs" / "broken.log").read_text()
