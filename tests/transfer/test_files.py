"""Reading without running code, refusing what is cut or foreign, writing all or nothing."""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.logging import MessageHub

from relpos_mm.transfer import TransferError
from relpos_mm.transfer.files import read_checkpoint, sha256_of, write_checkpoint, write_safetensors

STATE = {"weight": torch.arange(6.0).reshape(2, 3)}


class Runs:
    """A pickle of this would start a program when opened."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("true",)


def test_training_checkpoints_open(tmp_path: Path) -> None:
    """B021: numpy scalars and log histories of mmengine, arguments of official code."""
    hub = MessageHub.get_instance("transfer-test")
    hub.update_scalar("train/loss", np.float64(1.5))
    content = {
        "state_dict": STATE,
        "meta": {"seed": np.int64(3), "palette": np.zeros((2, 3), np.uint8)},
        "message_hub": hub.state_dict(),
        "args": argparse.Namespace(lr=0.1),
    }
    torch.save(content, tmp_path / "epoch_1.pth")
    read = read_checkpoint(tmp_path / "epoch_1.pth")
    assert torch.equal(read["state_dict"]["weight"], STATE["weight"])
    assert read["args"].lr == 0.1
    assert read["message_hub"]["log_scalars"]["train/loss"].current() == 1.5


@pytest.mark.parametrize("zipped", [True, False])
def test_pickles_that_run_code_are_not_opened(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "evil.pth"
    torch.save({"state_dict": STATE, "x": Runs()}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(TransferError, match=r"evil.pth: a pickle that runs code.*save its tensors"):
        read_checkpoint(path)


def test_getattr_reaches_nothing_but_log_histories(tmp_path: Path) -> None:
    """mmengine's files name ``builtins.getattr``; it must not open other doors."""

    class Gets:
        def __reduce__(self) -> tuple[object, ...]:
            return getattr, (np.ndarray, "tofile")

    torch.save({"x": Gets()}, tmp_path / "f.pth")
    with pytest.raises(TransferError, match="a pickle that runs code"):
        read_checkpoint(tmp_path / "f.pth")


@pytest.mark.parametrize("share", [0.0, 0.02, 0.6, 0.999])
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_cut_files_are_named(tmp_path: Path, share: float, suffix: str) -> None:
    """B045's sibling: a file whose copy was interrupted."""
    path = tmp_path / f"cut{suffix}"
    if suffix == ".safetensors":
        pytest.importorskip("safetensors.torch").save_file(STATE, path)
    else:
        torch.save({"state_dict": STATE}, path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(TransferError, match=rf"cut{suffix}: .*(cut or damaged|neither).* bytes"):
        read_checkpoint(path)


def write_strangers(folder: Path) -> dict[str, str]:
    """Files that hold no weights; name -> what is said of each."""
    (folder / "page.pth").write_text("<!DOCTYPE html>")
    (folder / "pointer.pth").write_text("version https://git-lfs.github.com/spec/v1\noid sha256")
    (folder / "index.json").write_text('{"metadata": {}}')
    (folder / "folder.pth").mkdir()
    np.savez(folder / "arrays.npz", weight=np.zeros(3))
    torch.jit.script(torch.nn.Linear(2, 2)).save(str(folder / "script.pt"))
    torch.save({"x": Runs()}, folder / "evil.pth")
    torch.save({"state_dict": STATE}, folder / "cut.pth")
    os.truncate(folder / "cut.pth", 500)
    return {
        "absent.pth": "no such file",
        "page.pth": "neither a torch checkpoint nor .safetensors .*DOCTYPE",
        "pointer.pth": ".*git lfs pull",
        "index.json": "a json text",
        "folder.pth": "a folder; give",
        "arrays.npz": "a zip archive, but no torch checkpoint .*weight.npy",
        "script.pt": "a TorchScript program, which is code",
        "evil.pth": "a pickle that runs code",
        "cut.pth": "the file is cut or damaged.*500 bytes",
    }


def test_other_files_are_named(tmp_path: Path) -> None:
    for name, message in write_strangers(tmp_path).items():
        with pytest.raises(TransferError, match=f"{name}: {message}"):
            read_checkpoint(tmp_path / name)


def test_the_content_counts_and_not_the_name(tmp_path: Path) -> None:
    torch.save({"state_dict": STATE}, tmp_path / "torch.safetensors")
    write_safetensors(tmp_path / "safe.pth", STATE)
    for name in ("torch.safetensors", "safe.pth"):
        read = read_checkpoint(tmp_path / name)
        assert torch.equal(read["state_dict"]["weight"], STATE["weight"])


def test_safetensors(tmp_path: Path) -> None:
    pytest.importorskip("safetensors.torch").save_file(STATE, tmp_path / "w.safetensors")
    read = read_checkpoint(tmp_path / "w.safetensors")
    assert torch.equal(read["state_dict"]["weight"], STATE["weight"])


def test_written_files_hold_plain_types_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "w.pth"
    write_checkpoint(path, {"state_dict": STATE, "meta": {"transfer": {"counts": {"new": 1}}}})
    assert torch.serialization.get_unsafe_globals_in_checkpoint(path) == []
    assert torch.load(path, weights_only=True)["meta"]["transfer"]["counts"] == {"new": 1}
    digest = subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True)
    assert digest.stdout.split()[0] == sha256_of(path)


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "w.pth"
    path.write_bytes(b"old")
    monkeypatch.setattr(torch, "save", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_checkpoint(path, {"state_dict": STATE})
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["w.pth"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TransferError, match=r"w.pth: cannot be written"):
        write_checkpoint(tmp_path / "file" / "w.pth", {"state_dict": STATE})
