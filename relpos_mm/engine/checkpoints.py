"""Telling what a checkpoint can be used for before a run is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from mmengine.logging import print_log

from relpos_mm.transfer import files
from relpos_mm.transfer.errors import TransferError

from .errors import UserError

_TRAINING_STATE = ("meta", "optimizer", "message_hub")


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Return the content of a checkpoint without running any code from it.

    Raises:
        UserError: The file is missing, damaged, or a pickle of more than plain data.
    """
    try:
        content = files.read_checkpoint(path)
    except TransferError as error:
        raise UserError(str(error)) from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: holds a {type(content).__name__}, not a state dict")
    return content


def weights_of(checkpoint: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return the tensors of a checkpoint by name, without the prefix that DDP adds."""
    state = checkpoint.get("state_dict", checkpoint)
    return {
        key.removeprefix("module."): value
        for key, value in state.items()
        if isinstance(value, torch.Tensor)
    }


def require_training_state(path: str | Path) -> dict[str, Any]:
    """Return the content of ``path`` if training can be resumed from it.

    Raises:
        UserError: The file is unreadable or holds weights only.
    """
    content = read_checkpoint(path)
    missing = [key for key in _TRAINING_STATE if key not in content]
    missing += [f"meta.{key}" for key in ("epoch", "iter") if key not in content.get("meta", {})]
    if missing:
        raise UserError(
            f"No training state in {path} (no {', '.join(missing)}), so --resume cannot go on from "
            f"it. To start a new training from these weights: --cfg-options load_from={path}; a "
            "classifier's weights go into a detector with tools/transfer.py."
        )
    return content


def latest_resumable(work_dir: str | Path) -> Path | None:
    """Return the newest file of ``work_dir`` that training can go on from; None without files.

    The file that ``last_checkpoint`` names comes first. It is looked up beside that note, too, so a
    run directory may be moved. A file that cannot be used is named in a warning.

    Raises:
        UserError: There are checkpoints, but none can be used.
    """
    work_dir = Path(work_dir)
    candidates: list[Path] = []
    note = work_dir / "last_checkpoint"
    if note.is_file() and (named := note.read_text().strip()):
        here = work_dir / Path(named).name
        candidates.append(here if here.is_file() else Path(named))
    saved = [*work_dir.glob("epoch_*.pth"), *work_dir.glob("iter_*.pth")]
    candidates += sorted(saved, key=lambda file: file.stat().st_mtime, reverse=True)
    for path in dict.fromkeys(candidates):
        try:
            require_training_state(path)
        except UserError as error:
            print_log(f"warning: {error}. Trying the checkpoint before it.")
        else:
            return path
    if candidates:
        raise UserError(
            f"None of the {len(set(candidates))} checkpoints in {work_dir} can be resumed from. "
            "Remove them, or train into another --work-dir."
        )
    return None
