"""Bringing all cells of a study to their end.

The state of the study is what lies in the cells' folders and nothing else: whoever starts again
after any interruption finds finished cells finished, and half-done ones go on.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relpos_mm.engine.errors import UserError
from relpos_mm.engine.saving import write_atomically

from .cell import Cell
from .executors import Job, Pool
from .lock import held
from .state import FINISHED, RUNNING, WAITING, State, state_of

TRIES = 2
_LEAST_FREE_BYTES = 300 * 2**20


@dataclass
class Progress:
    """What a watcher sees.

    Attributes:
        states: By cell id.
        tries: Starts by this runner, by cell id.
        blocked: Ids of cells that wait for a failed one.
        errors: What went wrong outside a cell's own commands, by cell id.
        note: Why nothing more is started, if so.
    """

    states: dict[str, State] = field(default_factory=dict)
    tries: dict[str, int] = field(default_factory=dict)
    blocked: set[str] = field(default_factory=set)
    errors: dict[str, str] = field(default_factory=dict)
    note: str = ""


def run_cells(
    cells: Sequence[Cell],
    folder: Path,
    pool: Pool,
    jobs: int,
    watch: Callable[[Progress], None] = lambda progress: None,
    poll_s: float = 1.0,
) -> Progress:
    """Run what is not finished, at most ``jobs`` at a time, and return how it ended.

    A cell that ends without a result is started once more, then left. One that another process
    works on is waited for.

    Raises:
        UserError: Another runner works on this study.
    """
    with held(folder / ".runner.lock", patience_s=1.0) as lock:
        if lock is None:
            raise UserError(
                f"Another runner works on {folder}. Watch it with `study.py status`; two would "
                "do nothing faster."
            )
        return _Runner(cells, folder, pool, jobs).run(watch, poll_s)


class _Runner:
    def __init__(self, cells: Sequence[Cell], folder: Path, pool: Pool, jobs: int) -> None:
        self.cells, self.folder, self.pool, self.jobs = cells, folder, pool, jobs
        self.progress = Progress(tries={cell.id: 0 for cell in cells})
        self.started: dict[str, Job] = {}

    def run(self, watch: Callable[[Progress], None], poll_s: float) -> Progress:
        while True:
            self._look()
            busy = self._start()
            watch(self.progress)
            if not busy:
                return self.progress
            time.sleep(poll_s)

    def _look(self) -> None:
        """Read all states anew; finished cells stay finished."""
        states = self.progress.states
        for cell in self.cells:
            job = self.started.get(cell.id)
            if job is not None and job.done():
                del self.started[cell.id]
                if error := job.exception():
                    kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
                    self.progress.errors[cell.id] = f"{kind}{error}"
            if states.get(cell.id, State(WAITING)).word != FINISHED:
                state = state_of(cell)
                submitted = cell.id in self.started and state.word != RUNNING
                states[cell.id] = State(RUNNING, "starts") if submitted else state

    def _start(self) -> bool:
        """Start what can start; return whether anything is still to be waited for."""
        states, given_up = self.progress.states, self._given_up()
        running = sum(state.word == RUNNING for state in states.values())
        self.progress.blocked = set()
        for cell in self.cells:
            if states[cell.id].word in (FINISHED, RUNNING) or cell.id in given_up:
                continue
            if given_up.union(self.progress.blocked).intersection(cell.needs):
                self.progress.blocked.add(cell.id)
                continue
            ready = all(states[need].word == FINISHED for need in cell.needs)
            if ready and running < self.jobs and self._has_room():
                running += self._submit(cell)
        return running > 0

    def _given_up(self) -> set[str]:
        return {
            cell.id
            for cell in self.cells
            if self.progress.tries[cell.id] >= TRIES
            and self.progress.states[cell.id].word not in (FINISHED, RUNNING)
        }

    def _submit(self, cell: Cell) -> bool:
        """Start a cell; one that cannot even be noted down must not end the others."""
        self.progress.tries[cell.id] += 1
        content = (json.dumps(cell.as_json(), indent=2) + "\n").encode()
        try:
            write_atomically(cell.path / "cell.json", content)
        except OSError as error:
            self.progress.errors[cell.id] = f"{type(error).__name__}: {error}"
            return False
        self.started[cell.id] = self.pool.submit(cell)
        self.progress.states[cell.id] = State(RUNNING, "starts")
        return True

    def _has_room(self) -> bool:
        free = shutil.disk_usage(self.folder).free
        room = free >= _LEAST_FREE_BYTES
        self.progress.note = (
            ""
            if room
            else f"only {free >> 20} MiB free under {self.folder}: nothing more is started. "
            "Make room and run again"
        )
        return room


def unfinished(progress: Progress) -> list[str]:
    """Return the ids of the cells that were tried as often as allowed and did not finish."""
    return [
        cell_id
        for cell_id, state in progress.states.items()
        if state.word != FINISHED and progress.tries[cell_id] >= TRIES
    ]
