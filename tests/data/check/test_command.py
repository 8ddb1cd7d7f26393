"""`tools/data.py check`: sets, exit codes, the printed summary, the json file."""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from relpos_mm.data.check.finding import error, note
from relpos_mm.data.check.outcome import Outcome
from relpos_mm.data.check.report import lines
from relpos_mm.data.trees import write_coco_tree

Check = Callable[..., int]


@pytest.fixture
def check(repo_root: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Runs the command in this process and returns its exit code."""
    main = runpy.run_path(str(repo_root / "tools/data.py"))["main"]

    def run(*arguments: object) -> int:
        monkeypatch.setattr(
            "sys.argv", ["data.py", "check", *map(str, arguments), "--workers", "1"]
        )
        return main()

    return run


def test_embedded_set_is_well_until_a_byte_changes(
    check: Check, tiny_set: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("mini", tiny_set) == 0
    assert f"mini in {tiny_set}: all is well, 0 notes" in capsys.readouterr().out
    spoiled = Path(shutil.copytree(tiny_set, tmp_path / "bdpq"))
    with (spoiled / "ann/val.json").open("a") as file:
        file.write(" ")
    next((spoiled / "img/train").iterdir()).unlink()
    assert check("mini", spoiled, "--json", tmp_path / "out/found.json") == 1
    report = json.loads((tmp_path / "out/found.json").read_text())
    assert not report["passed"]
    found = {
        (f["rule"], Path(f["file"]).relative_to(spoiled).as_posix()) for f in report["findings"]
    }
    assert found >= {("checksum", "ann/val.json"), ("checksum", "img/train"), ("pair", "seg/train")}
    assert ("count", "img/train") in found
    (spoiled / "manifest.json").write_text("{}")
    assert check("mini", spoiled) == 1
    assert "[manifest]" in capsys.readouterr().out


def test_coco_by_its_own_names_and_by_a_config(
    check: Check, tmp_path: Path, repo_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_coco_tree(tmp_path / "coco", num_images=1)
    config = repo_root / "configs/cascade_swin_t_relonly.py"
    assert check("coco", root, "--mini") == 0
    assert check("coco", root, "--mini", "--config", config, "--limit", 1) == 0
    assert check("coco", root, "--config", config) == 1
    assert "the published set has 118,287" in capsys.readouterr().out
    path = root / "annotations/instances_val2017.json"
    path.write_text(path.read_text().replace('"person"', '"human"'))
    assert check("coco", root, "--mini", "--config", config) == 1
    assert "it has no category called 'person'" in capsys.readouterr().out
    assert check("ade20k", root, "--config", config) == 1
    assert "none of its loaders has a BaseSegDataset" in capsys.readouterr().out


def test_folder_that_is_not_there_or_is_another_set(
    check: Check, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pictures").mkdir()
    for name in ("mini", "coco", "ade20k", "imagenet"):
        assert check(name, tmp_path / "nowhere") == 1
        assert f"{tmp_path}/nowhere: there is no such folder" in capsys.readouterr().out
        assert check(name, tmp_path) == 1
        printed = capsys.readouterr().out
        assert "no folder" in printed
        assert "found pictures" in printed


def test_long_lists_are_cut_with_a_count() -> None:
    outcome = Outcome([error("rule", f"{i}.jpg", "bad", "Mend it") for i in range(25)])
    text = lines("x", outcome)
    assert len([line for line in text if ".jpg" in line]) == 10
    assert "error [rule] ... and 15 more; --json FILE lists them all" in text
    assert text[-1] == "x: 25 errors, 0 notes"


def test_one_is_counted_in_the_singular() -> None:
    outcome = Outcome([error("rule", "a.jpg", "bad", "Mend it"), note("rule", "b.jpg", "odd", "")])
    assert lines("x", outcome)[-1] == "x: 1 error, 1 note"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--config", "absent.py"], "Config not found: absent.py"),
        (["--config", "broken.py"], "broken.py: not a readable config: SyntaxError"),
        (["--json", "."], "directory"),
        (["--json", "broken.py/found.json"], "broken.py"),
    ],
)
def test_files_that_cannot_be_used_are_one_message(
    check: Check,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    root = write_coco_tree(tmp_path / "coco", num_images=1)
    monkeypatch.chdir(tmp_path)
    Path("broken.py").write_text("model = dict(\n")
    assert check("coco", root, "--mini", *arguments) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1
    assert "all is well" not in printed.out, "before the pictures are opened"


def test_names_that_cannot_be_printed_are_shown_escaped(check: Check, tmp_path: Path) -> None:
    root = write_coco_tree(tmp_path / "coco", num_images=1)
    path = root / "annotations/instances_val2017.json"
    content = json.loads(path.read_text())
    content["images"][0]["file_name"] = "\ud800.jpg"
    path.write_text(json.dumps(content))
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # pytest's own would take anything
    with contextlib.redirect_stdout(out):
        assert check("coco", root, "--mini") == 1
    out.flush()
    assert b"val2017/\\ud800.jpg: " in out.buffer.getvalue()


@pytest.mark.parametrize("flag", ["--limit=0", "--limit=-1", "--workers=-2"])
def test_a_check_that_would_open_nothing_is_refused(
    check: Check, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        check("mini", ".", flag)
    assert flag.split("=")[0] in capsys.readouterr().err.splitlines()[-1]
