"""Our own modules use nothing that NumPy has removed or is about to."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

from .toys import toy_runner


def test_b095_no_removed_name_is_used(repo_root: Path) -> None:
    """Ruff knows every alias that NumPy 1.24 and 2.0 removed."""
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--select", "NPY001,NPY003,NPY201", "relpos_mm"],
        cwd=repo_root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_b095_a_training_raises_no_deprecation_in_our_modules(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        for kind in (DeprecationWarning, FutureWarning):
            warnings.filterwarnings("error", category=kind, module=r"relpos_mm(\.|$)")
        toy_runner(tmp_path).train()


def test_b095_the_import_raises_no_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "import relpos_mm"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
