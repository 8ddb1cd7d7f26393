"""What a measurement keeps: the machine, the rows, and what was left out."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from relpos_mm.engine.versions import code_version

from .benchmark import LeftOut, Row

_LIBRARIES = ("torch", "mmdet", "mmseg", "mmpretrain", "torchvision", "timm")


def load() -> float | None:
    """Return the number of processes that wait for a core, averaged over a minute."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


@dataclass(frozen=True)
class Start:
    """The moment when a measurement begins.

    Attributes:
        load: Of the machine, see :func:`load`.
        clock: Seconds, as ``time.perf_counter`` counts them.
        code: Version of the code that is measured; it may change on the disk until the end.
    """

    load: float | None = field(default_factory=load)
    clock: float = field(default_factory=time.perf_counter)
    code: str = field(default_factory=code_version)


def make_record(
    rows: Iterable[Row],
    left_out: Iterable[LeftOut],
    *,
    suites: Iterable[str],
    narrowed: Iterable[str],
    device: torch.device,
    start: Start,
    **more: Any,
) -> dict[str, Any]:
    """Return everything that a reader needs to judge the numbers, ready for json.

    Args:
        rows: What was measured.
        left_out: What was not.
        suites: Those that found something, of :data:`~relpos_mm.analysis.benchmark.SUITES`.
        narrowed: Flags that kept them from finding all.
        device: Where the suites ran.
        start: When they did.
        **more: Numbers beside the rows.
    """
    run = {**circumstances(device, start), "suites": list(suites), "narrowed": list(narrowed)}
    return {
        "runs": [run],
        **{key: _short(value) for key, value in more.items()},
        "left_out": [asdict(one) for one in left_out],
        "rows": [shortened(asdict(row)) for row in rows],
    }


def circumstances(device: torch.device, start: Start) -> dict[str, Any]:
    """Machine, load, code, libraries and duration of a measurement that ends now."""
    return {
        "machine": {
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "load_before": start.load,
            "load_after": load(),
        },
        "versions": {"relpos_mm": start.code, **_versions()},
        "minutes": _short((time.perf_counter() - start.clock) / 60),
    }


def describe(record: Mapping[str, Any]) -> str:
    """One line of Markdown on the circumstances of a record."""
    machine, versions = record["machine"], record["versions"]
    libraries = ", ".join(f"{name} {version}" for name, version in versions.items())
    minutes = record["minutes"]
    return (
        f"{machine['device']}, {machine['cores']} core(s), {machine['threads']} thread(s); load "
        f"{machine['load_before']} before and {machine['load_after']} after "
        f"{minutes:{'.0f' if minutes >= 100 else '.2g'}} minutes. {libraries}."
    )


def describe_runs(runs: Sequence[Mapping[str, Any]]) -> str:
    """Lines of Markdown on the circumstances of a benchmark, by suites where there are several."""
    if len(runs) == 1:
        return describe(runs[0])
    lines = []
    for run in runs:
        since = f" Renewed since: {', '.join(run['renewed'])}." if "renewed" in run else ""
        lines.append(f"- {', '.join(run['suites'])}: {describe(run)}{since}")
    return "\n".join(lines)


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
