"""Reading checkpoints without running code from them, and writing files that need none."""

from __future__ import annotations

import argparse
import hashlib
import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.logging import HistoryBuffer

from relpos_mm.transfer.errors import TransferError

_TRUNCATED = "the file is cut or damaged; copy or download it again"


def _history_method(owner: object, name: str) -> Callable[..., Any]:
    """Stand in for ``getattr``, by which mmengine's files refer to HistoryBuffer's methods."""
    if owner is not HistoryBuffer or name not in ("min", "max", "mean", "current"):
        raise pickle.UnpicklingError(f"builtins.getattr on {owner!r} is not allowed")
    return getattr(HistoryBuffer, name)


def safe_globals() -> list[Any]:
    """Classes beyond tensors in mmengine's and official training checkpoints: plain data only."""
    core = getattr(np, "_core", None) or np.core
    numpy = [
        # numpy 2 renamed the module; files name it by either name
        (function, f"numpy.{package}.multiarray.{function.__name__}")
        for function in (core.multiarray.scalar, core.multiarray._reconstruct)
        for package in ("core", "_core")
    ]
    dtypes = [type(np.dtype(kind)) for kind in "?bBhHiIlLqQefdSU"]
    restricted_getattr = (_history_method, "builtins.getattr")
    plain = [HistoryBuffer, argparse.Namespace, np.ndarray, np.dtype]
    return [restricted_getattr, *plain, *dtypes, *numpy]


def sha256_of(path: Path) -> str:
    """Hex digest of a file, read in pieces."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def read_checkpoint(path: str | Path) -> Any:
    """Read a .pth or .safetensors file on the CPU without running code from it.

    Raises:
        TransferError: the file is missing, cut, of another format, or a pickle that needs code.
    """
    path = Path(path)
    if not path.is_file():
        raise TransferError(f"{path}: no such file")
    with open(path, "rb") as file:
        start = file.read(64)
    if start.startswith(b"version https://git-lfs"):
        raise TransferError(f"{path}: a git-lfs pointer, not the file itself; run: git lfs pull")
    if path.suffix == ".safetensors":
        return {"state_dict": _read_safetensors(path)}
    if not start.startswith((b"PK\x03\x04", b"\x80")):
        raise TransferError(
            f"{path}: neither a torch checkpoint nor .safetensors "
            f"({path.stat().st_size} bytes, beginning with {start[:12]!r})"
        )
    try:
        with torch.serialization.safe_globals(safe_globals()):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "truncated" in str(error):
            raise TransferError(f"{path}: {_TRUNCATED} ({path.stat().st_size} bytes)") from error
        raise TransferError(_unsafe_message(path, error)) from error
    except (RuntimeError, OSError, EOFError, KeyError, ValueError) as error:
        raise TransferError(
            f"{path}: {_TRUNCATED} ({path.stat().st_size} bytes; {_first_line(error)})"
        ) from error


def _read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    try:
        import safetensors
        import safetensors.torch
    except ImportError:
        raise TransferError(
            f"{path}: reading it needs one package: pip install safetensors"
        ) from None
    try:
        return safetensors.torch.load_file(path)
    except safetensors.SafetensorError as error:
        raise TransferError(
            f"{path}: {_TRUNCATED} ({path.stat().st_size} bytes; {_first_line(error)})"
        ) from error


def _unsafe_message(path: Path, error: Exception) -> str:
    try:
        found = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except Exception:  # the older format without an index cannot be listed
        found = []
    allowed = {"builtins.getattr", "argparse.Namespace"}
    foreign = [name for name in found if name not in allowed and not name.startswith("numpy")]
    detail = ", ".join(foreign[:5]) or _first_line(error)
    return (
        f"{path}: a pickle that runs code when it is opened ({detail}), so it was not opened. "
        "If you trust where it comes from, open it with the code that wrote it and save its "
        "tensors alone: "
        'torch.save({"state_dict": model.state_dict()}, "weights.pth")'
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]


def write_checkpoint(path: str | Path, content: dict[str, Any]) -> None:
    """Write tensors and plain types to a temporary file beside ``path`` and renames it.

    Raises:
        TransferError: the folder cannot be made or written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    except OSError as error:
        raise TransferError(f"{path}: cannot be written ({error.strerror})") from error
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save(content, file)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
