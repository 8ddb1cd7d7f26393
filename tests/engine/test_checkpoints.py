"""Files are read safely; what can be resumed from is told apart from what cannot."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from relpos_mm.engine import UserError
from relpos_mm.engine.checkpoints import (
    latest_resumable,
    read_checkpoint,
    require_training_state,
    weights_of,
)

from .toys import toy_runner


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    toy_runner(folder).train()
    return folder


def copy_of(run_dir: Path, folder: Path) -> Path:
    for name in ("epoch_1.pth", "epoch_2.pth"):
        (folder / name).write_bytes((run_dir / name).read_bytes())
    os.utime(folder / "epoch_1.pth", (1, 1))
    (folder / "last_checkpoint").write_text("/elsewhere/epoch_2.pth")
    return folder


def test_b021_own_checkpoints_load_as_plain_data(run_dir: Path) -> None:
    content = read_checkpoint(run_dir / "epoch_2.pth")
    assert content["meta"]["epoch"] == 2
    assert content["meta"]["seed"] == 3
    assert weights_of(content)["head.weight"].shape == (2, 16)
    require_training_state(run_dir / "epoch_2.pth")


def test_b021_code_in_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "foreign.pth"
    torch.save({"state_dict": {}, "where": tmp_path}, path)
    with pytest.raises(UserError, match=r"foreign\.pth.*pathlib.*not opened"):
        read_checkpoint(path)


def test_old_format_is_read(tmp_path: Path) -> None:
    path = tmp_path / "old.pth"
    torch.save({"a": torch.ones(2)}, path, _use_new_zipfile_serialization=False)
    assert weights_of(read_checkpoint(path))["a"].sum() == 2


def test_missing_and_odd_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.pth: no such file"):
        read_checkpoint(tmp_path / "none.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(UserError, match="holds a list"):
        read_checkpoint(tmp_path / "list.pth")


def test_b046_weights_alone_cannot_be_resumed_from(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save({"state_dict": {"a": torch.ones(1)}}, path)
    with pytest.raises(UserError, match=r"No training state.*optimizer.*load_from"):
        require_training_state(path)


def test_the_noted_checkpoint_is_found_in_a_moved_directory(run_dir: Path, tmp_path: Path) -> None:
    folder = copy_of(run_dir, tmp_path)
    assert latest_resumable(folder) == folder / "epoch_2.pth"


def test_b045_a_cut_newest_file_gives_way_to_the_one_before(
    run_dir: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = copy_of(run_dir, tmp_path)
    newest = folder / "epoch_2.pth"
    newest.write_bytes(newest.read_bytes()[:2000])
    assert latest_resumable(folder) == folder / "epoch_1.pth"
    assert "epoch_2.pth" in "".join(capfd.readouterr())


def test_nothing_usable_is_an_error_and_nothing_at_all_is_not(tmp_path: Path) -> None:
    assert latest_resumable(tmp_path) is None
    (tmp_path / "iter_5.pth").write_bytes(b"cut")
    with pytest.raises(UserError, match="None of the 1 checkpoints"):
        latest_resumable(tmp_path)
