"""The benchmark's tool as a module."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def tool(repo_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``tools/benchmark.py``, whose documents lie in a folder of the test."""
    spec = importlib.util.spec_from_file_location(
        "benchmark_tool", repo_root / "tools/benchmark.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "DOCS", tmp_path / "docs")
    return module
