"""What a measurement keeps: the machine, the rows, and what was left out."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from .benchmark import LeftOut, Row

_LIBRARIES = ("torch", "mmdet", "mmseg", "mmpretrain", "torchvision", "timm")


def load() -> float | None:
    """Return the number of processes that wait for a core, averaged over a minute."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


def make_record(
    rows: Iterable[Row],
    left_out: Iterable[LeftOut],
    *,
    device: torch.device,
    load_before: float | None,
    seconds: float,
    **more: Any,
) -> dict[str, Any]:
    """Return everything that a reader needs to judge the numbers, ready for json."""
    return {
        **circumstances(device, load_before, seconds),
        **{key: _short(value) for key, value in more.items()},
        "left_out": [asdict(one) for one in left_out],
        "rows": [shortened(asdict(row)) for row in rows],
    }


def circumstances(
    device: torch.device, load_before: float | None, seconds: float
) -> dict[str, Any]:
    """Machine, load, libraries and duration of a measurement that ends now."""
    return {
        "machine": {
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "load_before": load_before,
            "load_after": load(),
        },
        "versions": _versions(),
        "minutes": _short(seconds / 60),
    }


def describe(record: Mapping[str, Any]) -> str:
    """One line of Markdown on the circumstances of a record."""
    machine, versions = record["machine"], record["versions"]
    libraries = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (
        f"{machine['device']}, {machine['cores']} core(s), {machine['threads']} thread(s); load "
        f"{machine['load_before']} before and {machine['load_after']} after "
        f"{record['minutes']:.2g} minutes. {libraries}."
    )


def dump(record: Mapping[str, Any]) -> str:
    """Return a record as json with one line per row, so that a change is one line, too."""
    rows = ",\n".join(f"  {json.dumps(row)}" for row in record["rows"])
    head = json.dumps({**record, "rows": []}, indent=1)
    return head.replace('"rows": []', f'"rows": [\n{rows}\n ]') + "\n"


def shortened(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with numbers of four digits: more would be noise."""
    return {key: _short(value) for key, value in row.items()}


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return shortened(value)
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for library in _LIBRARIES:
        if library in sys.modules:  # that is, it took part
            found[library] = sys.modules[library].__version__
    return found


def _cpu() -> str:
    """Name of the processor, as Linux tells it."""
    info = Path("/proc/cpuinfo")
    names = info.read_text().splitlines() if info.is_file() else []
    found = [line.split(":", 1)[1].strip() for line in names if line.startswith("model name")]
    return found[0] if found else platform.machine()
