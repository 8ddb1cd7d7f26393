"""Reading checkpoints without running code from them, and writing files that need none."""

from __future__ import annotations

import argparse
import hashlib
import os
import pickle
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

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
    start = _first_bytes(path)
    if start.startswith(b"version https://git-lfs"):
        raise TransferError(f"{path}: a git-lfs pointer, not the file itself; run: git lfs pull")
    # a length, then the header; the name may say anything
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") < 1 << 40:
        return {"state_dict": _read_safetensors(path)}
    if start.startswith((b"PK\x03\x04", b"\x80")):
        return _read_torch(path)
    if path.suffix == ".safetensors":
        raise TransferError(f"{path}: {_TRUNCATED} ({path.stat().st_size} bytes)")
    if start.startswith(b"{"):
        raise TransferError(f"{path}: a json text such as a config or an index, not the weights")
    raise TransferError(
        f"{path}: neither a torch checkpoint nor .safetensors "
        f"({path.stat().st_size} bytes, beginning with {start[:12]!r})"
    )


def _first_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise TransferError(f"{path}: a folder; give the .pth or .safetensors file in it")
    if not path.is_file():
        raise TransferError(f"{path}: no such file")
    try:
        with open(path, "rb") as file:
            return file.read(64)
    except OSError as error:
        raise TransferError(f"{path}: cannot be read ({error.strerror})") from error


def _read_torch(path: Path) -> Any:
    if zipfile.is_zipfile(path):  # not when it is cut
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
        if any(name.endswith("/constants.pkl") for name in names):
            raise TransferError(
                f"{path}: a TorchScript program, which is code; save its weights alone: "
                'torch.save({"state_dict": torch.jit.load(FILE).state_dict()}, "weights.pth")'
            )
        if not any(name.endswith("data.pkl") for name in names):
            held = ", ".join(names[:3])
            raise TransferError(f"{path}: a zip archive, but no torch checkpoint (it has {held})")
    try:
        # a file object, as torch takes the suffix .safetensors of a name for the format
        with torch.serialization.safe_globals(safe_globals()), open(path, "rb") as file:
            return torch.load(file, map_location="cpu", weights_only=True)
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


def refuse_target(source: str | Path, out: str | Path) -> None:
    """Refuse to write over the file that is read, onto a folder, or under another kind's name.

    Raises:
        TransferError: ``out`` is one of these.
    """
    if Path(out).is_dir():
        raise TransferError(f"{out}: a folder; give the name of the file to write")
    if Path(out).exists() and Path(out).samefile(source):
        raise TransferError(f"{out}: is the file that is read; give another name to write to")
    if Path(out).suffix not in (".pth", ".pt", ".safetensors"):
        raise TransferError(f"{out}: give a name that ends in .pth, .pt or .safetensors")


def write_checkpoint(path: str | Path, content: dict[str, Any]) -> None:
    """Write tensors and plain types to a temporary file beside ``path`` and renames it.

    Raises:
        TransferError: the folder cannot be made or written.
    """
    _write(path, lambda file: torch.save(content, file))


def write_safetensors(path: str | Path, state: dict[str, torch.Tensor]) -> None:
    """Write tensors as .safetensors, in the same manner.

    Raises:
        TransferError: the package is missing, or the folder cannot be made or written.
    """
    try:
        from safetensors.torch import save
    except ImportError:
        raise TransferError(f"{path}: writing it needs: pip install safetensors") from None
    plain = {key: value.contiguous() for key, value in state.items()}
    _write(path, lambda file: file.write(save(plain, {"format": "pt"})))


def _write(path: str | Path, put: Callable[[BinaryIO], object]) -> None:
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    except OSError as error:
        raise TransferError(f"{path}: cannot be written ({error.strerror})") from error
    try:
        with os.fdopen(handle, "wb") as file:
            put(file)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
