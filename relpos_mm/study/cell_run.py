"""Running one cell to its end, from wherever it stands, here or where submitit sends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from relpos_mm.engine.errors import UserError
from relpos_mm.engine.saving import write_atomically

from .cell import LAST, Cell, Step, cell_of
from .lock import held
from .spec import ROOT

LOCK, LOG, ATTEMPTS, DONE = ".lock", "log.txt", "attempts.jsonl", "done"
HELD_ELSEWHERE = 75  # EX_TEMPFAIL of sysexits.h


def run_cell(folder: str) -> int:
    """Run the steps of ``folder/cell.json`` that are not done; return 0 or the failed exit code.

    Does nothing and returns :data:`HELD_ELSEWHERE` while another process works on the cell. A step
    counts as done when its command has returned 0; training goes on from its newest checkpoint.
    """
    path = Path(folder)
    with held(path / LOCK, patience_s=2.0) as lock:
        if lock is None:
            return HELD_ELSEWHERE
        cell = cell_of(json.loads((path / "cell.json").read_text()))
        for step in cell.steps:
            marker = path / DONE / step.name
            if marker.exists():
                continue
            code = _attempt(cell, step, path, lock)
            if code:
                return code
            marker.parent.mkdir(exist_ok=True)
            marker.touch()
        _seal(cell, path)
        return 0


def _attempt(cell: Cell, step: Step, path: Path, lock: int) -> int:
    """Run one step with its output in the log; note when it began and how it ended."""
    began = time.time()
    note = {"step": step.name, "began": began, "host": os.uname().nodename}
    _append(path / ATTEMPTS, json.dumps(note))
    with (path / LOG).open("ab") as log:
        log.write(f"\n$ {step.line()}\n".encode())
        log.flush()
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if cell.gpus == 0:
            environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        code = subprocess.run(
            [sys.executable, *_found(step)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=(lock,),
        ).returncode
    _append(path / ATTEMPTS, json.dumps({**note, "ended": time.time(), "code": code}))
    return code


def _found(step: Step) -> list[str]:
    """The arguments with the checkpoints that other runs have named by now."""
    words = []
    for word in step.argv:
        if word.startswith(LAST):
            note = ROOT / word.removeprefix(LAST) / "last_checkpoint"
            word = note.read_text().strip()
        words.append(word)
    return words


def finish(cell: Cell) -> None:
    """Note a cell as finished whose commands somebody else has run.

    Raises:
        UserError: It has no result yet.
    """
    _seal(cell, cell.path)
    for step in cell.steps:
        marker = cell.path / DONE / step.name
        marker.parent.mkdir(exist_ok=True)
        marker.touch()


def _seal(cell: Cell, path: Path) -> None:
    """Write into ``result.json`` which cell it belongs to: the sign that the cell is finished.

    Raises:
        UserError: The cell's commands have ended, and there is no result that can be read.
    """
    result = path / "result.json"
    try:
        content = json.loads(result.read_text())
    except (OSError, ValueError) as error:
        raise UserError(
            f"{result}: {error}. Its training counts as done: put the file back, or delete "
            f"{path} to train the cell anew."
        ) from None
    content["cell"] = {
        key: getattr(cell, key) for key in ("id", "study", "task", "variant", "seed", "world")
    }
    # A killed attempt has no end; the training's own clock is the least it took.
    trained = (content.get("cost") or {}).get("wall_s") or 0.0
    content["cell"]["wall_s"] = round(max(wall_s(path), trained), 1)
    write_atomically(result, (json.dumps(content, indent=2) + "\n").encode())


def wall_s(path: Path) -> float:
    """Return the seconds that all finished attempts of a cell took together."""
    return sum(note["ended"] - note["began"] for note in attempts(path) if "ended" in note)


def attempts(path: Path) -> list[dict]:
    """Return the notes of a cell's attempts; a line that a full disk spoilt is left out."""
    try:
        lines = (path / ATTEMPTS).read_text().splitlines()
    except FileNotFoundError:
        return []
    notes = []
    for line in lines:
        try:
            note = json.loads(line)
        except ValueError:
            continue
        if isinstance(note, dict):
            notes.append(note)
    return notes


def killed_by(path: Path) -> str:
    """Return the signal that ended the last attempt, in words; empty where none did."""
    code = next((note["code"] for note in reversed(attempts(path)) if "code" in note), 0)
    if code >= 0:
        return ""
    by = signal.Signals(-code).name
    return f"killed by {by}" + (", as a system that lacks memory does" if by == "SIGKILL" else "")


def _append(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")


def send_cell(folder: str) -> None:
    """As :func:`run_cell`, for submitit: a failed cell is a failed job.

    Raises:
        UserError: The cell failed.
    """
    if code := run_cell(folder):
        raise UserError(f"{folder} ended with code {code}; its log is {folder}/{LOG}")
