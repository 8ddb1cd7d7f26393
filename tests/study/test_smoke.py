"""The smallest real study, through the command that a person types."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from relpos_mm.study.planning import plan
from relpos_mm.study.spec import ROOT, read_study
from relpos_mm.study.state import FINISHED, state_of

STUDY = """
title: A smaller smoke test
level: mechanism
data: bdpq
variants: [noenc, absrel]
seeds: [1]
tasks:
  classification:
    config: configs/mini/cls_swin_t_{variant}.py
    metrics: [top1_pct]
    options: &short
      train_cfg.max_iters: 2
      train_cfg.val_interval: 2
      default_hooks.checkpoint.interval: 2
      default_hooks.logger.interval: 1
  segmentation:
    config: configs/mini/upernet_swin_t_{variant}.py
    start: classification
    metrics: [miou_pct]
    options: *short
control: noenc
executor: {jobs: 2}
"""


def study(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "tools/study.py", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


@pytest.mark.train
def test_study_runs_once_and_reports(tmp_path: Path) -> None:
    file = tmp_path / "study_smoke_test.yaml"
    file.write_text(STUDY)
    small = read_study(file)
    shutil.rmtree(small.folder, ignore_errors=True)
    done = study("run", str(file))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    cells = plan(small)
    assert [state_of(cell).word for cell in cells] == [FINISHED] * 4
    results = [json.loads((cell.path / "result.json").read_text()) for cell in cells]
    classifiers = {result["cell"]["variant"]: result for result in results[:2]}
    for result in results:
        assert result["cost"]["train_pictures_per_s"] > 0
        assert result["cost"]["peak_memory_mib"] > 0
        assert result["precision"] == {"training": "float32", "evaluation": "float32"}
        assert 0 == result["cost"]["gmac_position_pct"] < result["cost"]["gmac"]  # tables only add
    share = classifiers["absrel"]["cost"]["params_position_pct"]
    assert 0 == classifiers["noenc"]["cost"]["params_position_pct"] < share < 100
    assert (cells[1].path / "evidence-bdpq-val.npz").is_file()
    assert (cells[3].path / "evidence-bdpq-val-single-scale.npz").is_file()
    page = (small.folder / "report.html").read_text()
    assert "undecided" in page
    assert "label maps" in page
    before = [(cell.path / "log.txt").stat().st_mtime_ns for cell in cells]
    again = study("run", str(file), "--no-report")
    assert again.returncode == 0
    assert [(cell.path / "log.txt").stat().st_mtime_ns for cell in cells] == before
    kept = study("report", str(file), "--out", str(tmp_path / "kept"), "--no-bootstrap")
    assert kept.returncode == 0, kept.stderr[-3000:]
    assert (tmp_path / "kept" / "report.md").is_file()
    shutil.rmtree(small.folder)
