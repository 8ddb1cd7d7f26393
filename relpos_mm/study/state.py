"""Where each cell stands, read from its folder alone."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cell import Cell
from .cell_run import DONE, LOCK, LOG, attempts
from .lock import is_held

FINISHED, RUNNING, FAILED, HALF_DONE, WAITING = (
    "finished",
    "running",
    "failed",
    "half-done",
    "waiting",
)


@dataclass(frozen=True)
class State:
    """How far a cell has come.

    Attributes:
        word: One of the five above.
        step: The step that runs, failed or comes next.
        eta: Of the running training, as its log has it (``0:03:10``), where it says so.
    """

    word: str
    step: str = ""
    eta: str = ""


def state_of(cell: Cell) -> State:
    """Return the state of a cell; reads its folder and changes nothing there."""
    path = cell.path
    rest = [step.name for step in cell.steps if not (path / DONE / step.name).exists()]
    notes = attempts(path)
    last = notes[-1] if notes else {}
    step = last.get("step", "")
    if is_held(path / LOCK):
        return State(RUNNING, step, _eta(path / LOG))
    if not rest and sealed(path, cell.id) is not None:
        return State(FINISHED)
    if not notes:
        return State(WAITING, rest[0] if rest else "")
    if last.get("code"):
        return State(FAILED, step)
    return State(HALF_DONE, rest[0] if rest else step)


def sealed(path: Path, cell_id: str) -> dict[str, Any] | None:
    """Return the result of a finished cell, or None."""
    try:
        content = json.loads((path / "result.json").read_text())
    except (OSError, ValueError):
        return None
    cell = content.get("cell") if isinstance(content, dict) else None
    return content if isinstance(cell, dict) and cell.get("id") == cell_id else None


def log_tail(path: Path, lines: int = 15) -> str:
    """Return the end of a cell's log."""
    return "\n".join(_end(path / LOG).splitlines()[-lines:])


def _eta(log: Path) -> str:
    found = re.findall(r"\beta: ((?:\d+ days?, )?[\d:]+)", _end(log))
    return found[-1] if found else ""


def _end(path: Path, size: int = 8192) -> str:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(file.tell() - size, 0))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
