"""``tools/gpu_check.py`` as far as a CPU goes: every path of it, and its refusal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "tools/gpu_check.py", *arguments],
        cwd=root,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )


def test_without_a_device_it_ends_in_one_message(repo_root: Path, tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    done = run(repo_root, "--out", str(out))
    assert done.returncode != 0
    assert "torch sees no CUDA device here; --device cpu --quick tests the script" in done.stderr
    assert "Traceback" not in done.stderr
    assert not out.exists()


@pytest.mark.train
def test_every_check_runs_on_a_cpu(repo_root: Path, tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    done = run(repo_root, "--device", "cpu", "--quick", "--out", str(out))
    assert done.returncode == 0, done.stderr[-3000:]
    checks = json.loads(out.read_text())["checks"]
    kinds = {name.split()[0] for name in checks}
    assert kinds == {"gold", "forms", "no_sync", "speed", "compile"}
    assert checks["gold"]["maps"] > 3
    assert checks["gold"]["error"] < 1e-5
    assert set(checks["forms rel float32"]) == {"eager", "fused", "flex", "seconds"}
    (speed,) = (facts for name, facts in checks.items() if name.startswith("speed"))
    assert speed["inference"]["speed_up"] > 0
    assert speed["training"]["mib"] > 0
    assert checks["compile"]["error"] < 0.1


@pytest.mark.train
def test_what_the_budget_leaves_out_is_told(repo_root: Path, tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    done = run(repo_root, "--device", "cpu", "--quick", "--budget", "0", "--out", str(out))
    assert done.returncode == 0
    checks = json.loads(out.read_text())["checks"]
    assert all("budget of 0 s" in facts["left_out"] for facts in checks.values())
