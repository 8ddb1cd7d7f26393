"""B045: a crash while saving leaves the file that was there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relpos_mm.engine import saving
from relpos_mm.engine.checkpoints import read_checkpoint
from relpos_mm.engine.errors import UserError
from relpos_mm.engine.saving import require_folder, require_writable

from .toys import toy_runner


def test_an_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    saving.write_atomically(path, b"old")

    def crash(*_: Any) -> None:
        raise OSError("disk gone")

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(OSError, match="disk gone"):
        saving.write_atomically(path, b"new and longer")
    assert path.read_bytes() == b"old"


def test_only_finished_files_carry_a_checkpoint_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed = []

    def rename(source: Path, target: Path) -> None:
        read_checkpoint(source)  # whole before it gets its name
        renamed.append(Path(target).name)
        original(source, target)

    original = os.replace
    monkeypatch.setattr(os, "replace", rename)
    toy_runner(tmp_path).train()
    assert renamed == ["epoch_1.pth", "epoch_2.pth"]


def test_the_oldest_goes_after_the_new_one_is_there(tmp_path: Path) -> None:
    checkpoint = {"type": "SafeCheckpointHook", "interval": 1, "max_keep_ckpts": 2}
    seen = []
    runner = toy_runner(
        tmp_path,
        default_hooks={"checkpoint": checkpoint},
        train_cfg={"by_epoch": True, "max_epochs": 4},
    )
    save = runner.save_checkpoint

    def spy(*args: Any, **kwargs: Any) -> None:
        save(*args, **kwargs)
        seen.append(sorted(path.name for path in tmp_path.glob("*.pth")))

    runner.save_checkpoint = spy
    runner.train()
    assert seen[-1] == ["epoch_2.pth", "epoch_3.pth", "epoch_4.pth"]
    assert sorted(path.name for path in tmp_path.glob("*.pth")) == ["epoch_3.pth", "epoch_4.pth"]


@pytest.mark.parametrize("require", [require_folder, require_writable])
def test_a_place_that_cannot_be_made_is_one_message(
    require: Callable[[str, Path], None], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"^--out: .*File name too long"):
        require("--out", tmp_path / ("a" * 300) / "file.json")
    (tmp_path / "taken").touch()
    with pytest.raises(UserError, match=r"^--out: .*taken is no folder; name another"):
        require("--out", tmp_path / "taken" / "file.json")
    require("--out", tmp_path / "new" / "file.json")
    assert not (tmp_path / "new").exists()
