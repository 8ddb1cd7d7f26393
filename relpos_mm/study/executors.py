"""Where cells run: processes of this machine, or a cluster through submitit."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from relpos_mm.engine.errors import UserError

from .cell import Cell
from .cell_run import run_cell, send_cell
from .spec import Executor, Study


class Job(Protocol):
    """A cell on its way."""

    def done(self) -> bool:
        """Return whether it has ended, in whatever way."""

    def exception(self) -> BaseException | None:
        """Return what went wrong outside the cell's own commands."""


class Pool(Protocol):
    """Takes cells whose folders are ready."""

    def submit(self, cell: Cell) -> Job:
        """Start a cell."""


class LocalPool:
    """Processes of this machine, one thread each where they have no GPU.

    The trainings are processes of their own that outlive this one; the threads only wait for them.
    """

    def __init__(self, jobs: int) -> None:
        self._threads = ThreadPoolExecutor(jobs)

    def submit(self, cell: Cell) -> Job:
        """Run the cell's commands."""
        return self._threads.submit(run_cell, str(cell.path))


class SubmititPool:
    """One job per cell; needs ``pip install submitit``.

    Args:
        study: The study.
        cluster: ``slurm``, or what else submitit knows (``local`` and ``debug`` serve tests).

    Raises:
        UserError: submitit is not installed, finds no such cluster here, or refuses a parameter of
            the study file.
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
        self._executor("cell", 0)  # refuses before any cell is noted down

    def _executor(self, name: str, gpus: int) -> Any:
        try:
            executor = self._open()
        except RuntimeError as error:
            raise UserError(
                f"executor.kind: {self._study.executor.kind}: {error}. Start the study where jobs "
                "can be submitted, or take the commands of `plan --print`."
            ) from None
        wanted = {
            "name": name,
            "timeout_min": 60,
            "tasks_per_node": 1,  # torchrun starts the processes
            **({"gpus_per_node": gpus} if gpus else {}),
            **self._study.executor.parameters,
        }
        try:
            executor.update_parameters(**wanted)
        except (NameError, ValueError) as error:
            raise UserError(f"executor.parameters: submitit refuses {wanted}: {error}") from None
        return executor

    def submit(self, cell: Cell) -> Job:
        """Send the cell; ``executor.parameters`` say partition, time limit and the like."""
        return self._executor(cell.id, cell.gpus).submit(send_cell, str(cell.path))


def pool_of(study: Study, executor: Executor) -> Pool:
    """Return the pool that a study file asks for."""
    return LocalPool(executor.jobs) if executor.kind == "local" else SubmititPool(study)
