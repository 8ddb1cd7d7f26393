"""The demo's chain of tools, with trainings of two iterations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from relpos_mm.demo import Demo, _progress
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
    stale = tmp_path / dense / "pictures" / "of_an_earlier_demo.png"
    stale.parent.mkdir(parents=True)
    stale.touch()
    command = [sys.executable, "tools/demo.py", "--task", task, "--work-dir", str(tmp_path)]
    command += ["--record", str(tmp_path / "record"), "--cfg-options", *SHORT]
    done = subprocess.run(command, cwd=repo_root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert not stale.exists()
    record = json.loads((tmp_path / "record" / f"{task}.json").read_text())
    assert list(record) == ["classifier", dense, f"{dense}_scratch"]
    assert metrics <= record[dense]["metrics"].keys()
    assert record[dense]["data_sha256"] == record["classifier"]["data_sha256"]
    assert (tmp_path / f"{dense}.png").stat().st_size > 10_000
    assert f"load_from={tmp_path}/classifier_to_{dense}.pth" in done.stdout


@pytest.mark.train
def test_detr_demo_is_one_run(repo_root: Path, tmp_path: Path) -> None:
    command = [sys.executable, "tools/demo.py", "--task", "detr", "--work-dir", str(tmp_path)]
    command += ["--record", str(tmp_path / "record"), "--cfg-options", *SHORT]
    done = subprocess.run(command, cwd=repo_root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    record = json.loads((tmp_path / "record" / "detr.json").read_text())
    assert list(record) == ["detr"]
    assert record["detr"]["variant"] == "irpe_k"
    assert "box_ap" in record["detr"]["metrics"]
    assert (tmp_path / "detr.png").stat().st_size > 10_000


def test_unknown_variant_ends_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cascade_swin_t_nothing\.py; variants are .*relonly"):
        Demo("detection", "nothing", tmp_path / "runs").run()
    assert not (tmp_path / "runs").exists()


def test_folder_that_cannot_be_made_ends_in_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(UserError, match=r"file/runs: cannot be written .*--work-dir"):
        Demo("detection", "relonly", tmp_path / "file" / "runs").run()


def test_failed_step_names_its_log(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    demo = Demo("detection", "relonly", tmp_path)
    with pytest.raises(UserError, match=r"step 'broken' failed, its log is .*broken\.log"):
        demo._tool("broken", "data.py", "no-such-command")
    assert (tmp_path / "logs" / "broken.log").read_text()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            "11/29 - mmengine - INFO - Iter(train) [ 40/260]  lr: 1e-4  eta: 0:02:17  loss: 4.05",
            "train [40/260]  eta: 0:02:17  loss: 4.05",
        ),
        (
            "INFO - Iter(val) [25/25]    coco/bbox_mAP: 0.5030  data_time: 0.1  time: 0.3",
            "val [25/25]  coco/bbox_mAP: 0.5030",
        ),
        ("INFO - Iter(val) [10/25]    eta: 0:00:07  time: 0.4  data_time: 0.02", None),
        ("INFO - Saving checkpoint at 120 iterations", None),
    ],
)
def test_screen_shows_step_time_left_and_loss(line: str, shown: str | None) -> None:
    assert _progress(line) == shown
