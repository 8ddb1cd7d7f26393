"""Every picture gets files of its own, whatever folders the pictures come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from relpos_mm.engine import UserError, infer_cli
from relpos_mm.engine.infer_cli import infer, name_outputs


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_folders_keep_their_structure_and_equal_names_stay_apart(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    touch(a / "x.png", a / "deep" / "x.png", a / "notes.txt", b / "x.png", b / "X.JPG")
    jobs = name_outputs([a, b / "x.png", b], Path("out"))
    assert jobs == {
        a / "x.png": Path("out/x"),
        a / "deep" / "x.png": Path("out/deep/x"),
        b / "x.png": Path("out/x-2"),
        b / "X.JPG": Path("out/X"),
    }


def test_a_picture_stays_apart_from_the_label_map_of_another(tmp_path: Path) -> None:
    touch(tmp_path / "x.jpg", tmp_path / "x.labels.jpg")
    jobs = name_outputs([tmp_path], Path("out"))
    assert [*jobs.values()] == [Path("out/x"), Path("out/x.labels-2")]


def test_a_missing_file_is_left_to_the_reader_and_an_empty_folder_is_refused(
    tmp_path: Path,
) -> None:
    missing = tmp_path / "none.png"
    assert name_outputs([missing], Path("out")) == {missing: Path("out/none")}
    with pytest.raises(UserError, match="No picture in folder"):
        name_outputs([tmp_path], Path("out"))


def test_a_folder_that_cannot_be_made_is_named(
    tmp_path: Path, repo_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path / "x.png", tmp_path / "file")
    monkeypatch.setattr(infer_cli, "Predictor", lambda *_: None)
    config = str(repo_root / "configs" / "mini" / "cls_swin_t_relonly.py")
    with pytest.raises(UserError, match=r"--out-dir: .*file/out cannot be made \(Not a directory"):
        infer([config, "x.pth", str(tmp_path / "x.png"), "--out-dir", str(tmp_path / "file/out")])


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--cfg-options", "nothing", "--cfg-options: 'nothing': not KEY=VALUE"),
        ("--device", "nodevice", "argument --device: 'nodevice' cannot be used here"),
    ],
)
def test_a_value_that_cannot_be_used_is_an_error_of_the_command_line(
    flag: str, value: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        infer(["config.py", "x.pth", "x.png", flag, value])
    assert said in capsys.readouterr().err
