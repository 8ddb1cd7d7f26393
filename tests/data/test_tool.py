"""tools/data.py: exit codes and messages."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

TINY = ["cls_train=8", "cls_val=8", "train_scenes=1", "val_scenes=1"]
Run = Callable[..., int]


@pytest.fixture
def data_tool(repo_root: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the tool in this process and returns its exit code."""
    main = runpy.run_path(str(repo_root / "tools/data.py"))["main"]

    def run(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["data.py", *arguments])
        return main()

    return run


def test_make_mini_takes_seed_and_knobs(
    data_tool: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "small")
    assert (
        data_tool("make-mini", "--out", out, "--seed", "5", "--workers", "1", "--set", *TINY) == 0
    )
    manifest = json.loads((tmp_path / "small/manifest.json").read_text())
    assert (manifest["seed"], manifest["knobs"]["train_scenes"]) == (5, 1)
    assert data_tool("make-mini", "--out", out) == 2
    assert "another seed and knobs" in capsys.readouterr().err


def test_make_tree_and_refusals(
    data_tool: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert data_tool("make-tree", "ade20k", str(tmp_path / "ade")) == 0
    assert len(list((tmp_path / "ade/images/training").iterdir())) == 4
    assert data_tool("make-tree", "ade20k", str(tmp_path / "ade")) == 2
    assert "not empty" in capsys.readouterr().err
    assert data_tool("make-mini", "--out", str(tmp_path / "x"), "--set", "noise=loud") == 2
    assert "whole numbers" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("layout", ["coco", "ade20k", "imagenet"])
def test_a_made_tree_passes_its_check(
    layout: str, data_tool: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(tmp_path / layout)
    assert data_tool("make-tree", layout, root) == 0
    assert data_tool("check", layout, root, "--mini", "--workers", "1") == 0
    assert f"{layout} in {root}: all is well, 0 notes" in capsys.readouterr().out
    assert data_tool("check", layout, root, "--limit", "1", "--workers", "1") == 1
    printed = capsys.readouterr().out
    assert printed.count("error [count]") == 2, "only the counts are not those of the real set"
    assert ": 2 errors, 0 notes" in printed
