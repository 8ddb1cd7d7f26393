"""Where cells run: processes of this machine, or a cluster through submitit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any, Protocol

from relpos_mm.engine.errors import UserError

from .cell import Cell
from .cell_run import LOG, send_cell
from .spec import ROOT, Executor, Study


class Job(Protocol):
    """A cell on its way."""

    def done(self) -> bool:
        """Return whether it has ended, in whatever way."""


class Pool(Protocol):
    """Takes cells whose folders are ready."""

    def submit(self, cell: Cell) -> Job:
        """Start a cell."""


class LocalPool:
    """One process per cell, with one thread where it has no GPU."""

    def submit(self, cell: Cell) -> Job:
        """Start the process; it outlives this one, and its output goes into the cell's log."""
        with (cell.path / LOG).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "relpos_mm.study.cell_run", str(cell.path)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return _LocalJob(process)


class _LocalJob:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def done(self) -> bool:
        return self.process.poll() is not None


class SubmititPool:
    """One job per cell; needs ``pip install submitit``.

    Args:
        study: The study.
        cluster: ``slurm``, or what else submitit knows (``local`` and ``debug`` serve tests).

    Raises:
        UserError: submitit is not installed, or refuses a parameter of the study file.
    """

    def __init__(self, study: Study, cluster: str = "slurm") -> None:
        try:
            import submitit
        except ImportError:
            raise UserError(
                "executor.kind: slurm needs submitit: pip install 'relpos-mm[slurm]'"
            ) from None
        self._study = study
        self._open: Callable[[], Any] = lambda: submitit.AutoExecutor(
            study.folder / "submitit", cluster=cluster
        )

    def submit(self, cell: Cell) -> Job:
        """Send the cell; ``executor.parameters`` say partition, time limit and the like."""
        executor = self._open()
        gpus = {"gpus_per_node": cell.gpus} if cell.gpus else {}
        wanted = {
            "name": cell.id,
            "timeout_min": 60,
            "tasks_per_node": 1,  # torchrun starts the processes
            **gpus,
            **self._study.executor.parameters,
        }
        try:
            executor.update_parameters(**wanted)
        except (NameError, ValueError) as error:
            raise UserError(f"executor.parameters: submitit refuses {wanted}: {error}") from None
        return executor.submit(send_cell, str(cell.path))


def pool_of(study: Study, executor: Executor) -> Pool:
    """Return the pool that a study file asks for."""
    return LocalPool() if executor.kind == "local" else SubmititPool(study)
