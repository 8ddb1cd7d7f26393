"""Checkpoints that a crash while saving cannot damage."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from mmengine.dist import is_main_process
from mmengine.fileio import LocalBackend, register_backend
from mmengine.hooks import CheckpointHook
from mmengine.registry import HOOKS
from mmengine.runner import Runner

from .errors import UserError


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write ``content`` to ``path``; at any moment the old or the new file is there, whole."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def require_writable(flag: str, path: Path) -> None:
    """Refuse a file that cannot be written, before the work for it; nothing is made.

    Args:
        flag: Of the command line, for the message.
        path: The file.

    Raises:
        UserError: It is a folder, or the nearest folder above it is none or may not be written.
    """
    if os.path.isdir(path):  # pathlib's raises below a folder that may not be searched
        raise UserError(f"{flag}: {path} is a folder; name another file")
    if why := _in_the_way(path.absolute().parent):
        raise UserError(f"{flag}: {path} cannot be made: {why}; name another file")


def require_folder(flag: str, folder: Path) -> None:
    """Refuse a folder that cannot be made or written into, before the work for it.

    Args:
        flag: Of the command line, for the message.
        folder: The folder; nothing is made.

    Raises:
        UserError: Names the flag, the folder and what is in the way.
    """
    if why := _in_the_way(folder.absolute()):
        raise UserError(f"{flag}: {folder}: {why}; name another folder")


def _in_the_way(folder: Path) -> str:
    """What keeps files out of a folder that may have to be made; empty if nothing does."""
    try:
        there = next(path for path in (folder, *folder.parents) if path.exists())
    except OSError as error:  # a name too long, or a folder that may not be searched
        return f"{folder}: {error.strerror}"
    if not there.is_dir():
        return f"{there} is no folder"
    return "" if os.access(there, os.W_OK | os.X_OK) else f"{there} may not be written"


@register_backend("atomic")
class AtomicLocalBackend(LocalBackend):
    """mmengine's local files, written under another name and then renamed."""

    def put(self, obj: bytes, filepath: str | Path) -> None:
        write_atomically(filepath, obj)


@HOOKS.register_module()
class SafeCheckpointHook(CheckpointHook):
    """mmengine's hook; it writes atomically and removes the oldest file after the new one is there.

    The stock hook removes first, so with ``max_keep_ckpts=1`` a crash while saving leaves nothing;
    the same goes for the best checkpoint.
    """

    last_ckpt: str | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("backend_args") is None:
            kwargs["backend_args"] = {"backend": "atomic"}
        super().__init__(*args, **kwargs)

    def before_train(self, runner: Runner) -> None:
        super().before_train(runner)
        if runner._resume and self.last_ckpt is None:
            # A validation may come before the first save; its best score goes into this file.
            self.last_ckpt = runner.message_hub.runtime_info.get("last_ckpt")

    def _save_checkpoint_with_step(self, runner: Runner, step: int, meta: dict[str, Any]) -> None:
        oldest = None
        full = self.max_keep_ckpts > 0 and len(self.keep_ckpt_ids) == self.max_keep_ckpts
        if full and self.keep_ckpt_ids[-1] != step:
            oldest = self.keep_ckpt_ids.popleft()
        super()._save_checkpoint_with_step(runner, step, meta)
        if oldest is not None and is_main_process():
            self._remove(
                self.file_backend.join_path(self.out_dir, self.filename_tmpl.format(oldest))
            )

    def _save_best_checkpoint(self, runner: Runner, metrics: dict[str, Any]) -> None:
        if not self.save_best:
            return
        # mmengine removes what these name before it saves; nothing is named to it.
        before = self._best_paths()
        self._name_best(dict.fromkeys(before))
        try:
            super()._save_best_checkpoint(runner, metrics)
        finally:
            after = self._best_paths()
            self._name_best({key: after.get(key) or path for key, path in before.items()})
        if is_main_process():
            for key, path in before.items():
                if path and after.get(key) and after[key] != path:
                    self._remove(str(path))

    def _best_paths(self) -> dict[str, str | None]:
        if hasattr(self, "best_ckpt_path_dict"):
            return dict(self.best_ckpt_path_dict)
        return {"": self.best_ckpt_path}

    def _name_best(self, paths: dict[str, str | None]) -> None:
        if hasattr(self, "best_ckpt_path_dict"):
            self.best_ckpt_path_dict.update(paths)
        else:
            self.best_ckpt_path = paths[""]

    def _remove(self, path: str) -> None:
        if self.file_backend.isfile(path):
            self.file_backend.remove(path)
