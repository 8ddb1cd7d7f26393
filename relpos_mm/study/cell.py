"""A cell of the study: one training with its tests, as plain data."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .spec import ROOT

# Stands for the newest checkpoint of a run directory, which only the finished run can name.
LAST = "@last:"


@dataclass(frozen=True)
class Step:
    """One command.

    Attributes:
        name: Unique within the cell.
        argv: Arguments behind ``python``.
    """

    name: str
    argv: tuple[str, ...]

    def line(self) -> str:
        """The command for a shell, to be run in the checkout."""
        return shlex.join(["python"]) + "".join(f" {_quoted(word)}" for word in self.argv)


def _quoted(word: str) -> str:
    if word.startswith(LAST):
        return f'"$(cat {shlex.quote(word.removeprefix(LAST))}/last_checkpoint)"'
    return shlex.quote(word)


@dataclass(frozen=True)
class Cell:
    """One training of a study with its tests.

    Attributes:
        id: Readable name and a hash of everything that the numbers depend on, so the same study
            finds its cells again and a changed one does not mix with the old.
        study: Name of the study.
        needs: Ids of the cells that must be finished before.
        folder: Where it lives, relative to the checkout where it lies inside.
        steps: What is run in order.
        gpus: Processes, one GPU each; 0 is one process on the CPU.
    """

    id: str
    study: str
    task: str
    variant: str
    seed: int
    world: str
    needs: tuple[str, ...]
    folder: str
    steps: tuple[Step, ...]
    gpus: int = 0

    @property
    def path(self) -> Path:
        """The cell's folder."""
        return ROOT / self.folder

    def as_json(self) -> dict[str, Any]:
        """The cell as plain values; :func:`cell_of` reads them back."""
        return asdict(self)


def cell_of(content: dict[str, Any]) -> Cell:
    """Return the cell that ``as_json`` wrote."""
    steps = tuple(Step(**{**step, "argv": tuple(step["argv"])}) for step in content["steps"])
    return Cell(**{**content, "steps": steps, "needs": tuple(content["needs"])})


def waves(cells: Sequence[Cell]) -> Iterator[list[Cell]]:
    """Yield the cells in groups: those of a group need only cells of the groups before."""
    done: set[str] = set()
    rest = list(cells)
    while rest:
        ready = [cell for cell in rest if done.issuperset(cell.needs)]
        yield ready
        done.update(cell.id for cell in ready)
        rest = [cell for cell in rest if cell.id not in done]
