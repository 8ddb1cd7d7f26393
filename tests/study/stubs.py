"""Cells whose commands are a small script, and pools that run them without starting Python anew."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from relpos_mm.study.cell import Cell, Step
from relpos_mm.study.cell_run import run_cell
from relpos_mm.study.executors import Job, LocalPool

# Says that it was called; stands still while FOLDER/hold exists; fails while FOLDER/broken does.
SCRIPT = """
import json, os, pathlib, sys, time
folder, step = pathlib.Path(sys.argv[1]), sys.argv[2]
with (folder / "calls").open("a") as file:
    file.write(f"{step}\\n")
(folder / "pid").write_text(str(os.getpid()))
while (folder / "hold").exists():
    time.sleep(0.01)
if (folder / "broken").exists():
    sys.exit(f"{step} has met a stone")
if step == "train":
    (folder / "result.json").write_text(json.dumps({"phase": "train", "metrics": {"m": 1.0}}))
"""


def stub_cells(root: Path, steps: tuple[str, ...] = ("train", "test")) -> list[Cell]:
    """Return two classifiers and a dense cell behind each; their script lies in ``root``."""
    script = root / "script.py"
    script.write_text(SCRIPT)
    cells = []
    for task, start in (("cls", None), ("dense", "cls")):
        for variant in ("one", "two"):
            folder = root / f"{task}-{variant}"
            folder.mkdir()
            cells.append(
                Cell(
                    id=folder.name,
                    study="stub",
                    task=task,
                    variant=variant,
                    seed=1,
                    world="",
                    needs=(f"{start}-{variant}",) if start else (),
                    folder=str(folder),
                    steps=tuple(Step(s, (str(script), str(folder), s)) for s in steps),
                )
            )
    return cells


def calls(cell: Cell) -> list[str]:
    """Return the steps that the cell's script was called for."""
    file = cell.path / "calls"
    return file.read_text().split() if file.exists() else []


class ThreadPool(LocalPool):
    """The local pool; notes which cells were submitted."""

    def __init__(self) -> None:
        super().__init__(jobs=4)
        self.submitted: list[str] = []

    def submit(self, cell: Cell) -> Job:
        self.submitted.append(cell.id)
        return super().submit(cell)


class _Child:
    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ended = False

    def done(self) -> bool:
        if not self.ended:
            self.ended = os.waitpid(self.pid, os.WNOHANG) != (0, 0)
        return self.ended

    def exception(self) -> None:
        """Nothing comes back from a killed process."""


def fork(work: Callable[[], object]) -> _Child:
    """Run ``work`` in a copy of this process, which can be killed."""
    pid = os.fork()
    if pid == 0:
        os.closerange(3, 256)  # as subprocess does: no lock of the parent goes along
        try:
            work()
        finally:
            os._exit(0)
    return _Child(pid)


class ForkPool:
    """Runs each cell in a process of its own, as a cluster does, so that it can be killed."""

    def __init__(self) -> None:
        self.children: dict[str, _Child] = {}

    def submit(self, cell: Cell) -> _Child:
        self.children[cell.id] = fork(lambda: run_cell(str(cell.path)))
        return self.children[cell.id]


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition; a test that waits in vain fails."""
    end = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
