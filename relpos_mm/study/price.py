"""What a study costs: from the study file, and from the cells that are finished."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from .cell import Cell, waves
from .cell_run import wall_s
from .spec import Study


@dataclass(frozen=True)
class Price:
    """Hours of each cell.

    Attributes:
        hours: By cell id; None where neither the study file nor a finished cell says it.
        jobs: Cells at a time.
        cells: The cells.
        measured: Tasks whose hours are those of finished cells.
    """

    hours: Mapping[str, float | None]
    jobs: int
    cells: tuple[Cell, ...]
    measured: frozenset[str] = frozenset()

    def left(self, done: set[str]) -> str:
        """Return what is still to be paid, in words."""
        rest = [cell for cell in self.cells if cell.id not in done]
        unknown = sorted({cell.task for cell in rest if self.hours[cell.id] is None})
        if unknown:
            return f"no hours known for {', '.join(unknown)}"
        hours = {cell.id: self.hours[cell.id] or 0.0 for cell in rest}
        wall = wall_hours(rest, hours, self.jobs, done)
        gpu = sum(hours[cell.id] * cell.gpus for cell in rest)
        parts = [f"{_shown(wall)} to go with {self.jobs} at a time"]
        if gpu:
            parts.append(f"{gpu:,.0f} GPU hours")
        return ", ".join(parts)


def price_of(study: Study, cells: Sequence[Cell], done: Collection[str], jobs: int) -> Price:
    """Return the price; finished cells of a task replace what the study file expects of it."""
    taken: dict[str, list[float]] = {}
    for cell in cells:
        if cell.id in done:
            taken.setdefault(cell.task, []).append(wall_s(cell.path) / 3600)
    expected = {
        name: fmean(taken[name]) if name in taken else task.hours
        for name, task in study.tasks.items()
    }
    hours = {cell.id: expected[cell.task] for cell in cells}
    return Price(hours, jobs, tuple(cells), frozenset(taken))


def wall_hours(
    cells: Sequence[Cell], hours: Mapping[str, float], jobs: int, done: set[str]
) -> float:
    """Return the hours until the last cell ends, ``jobs`` at a time in the runner's order."""
    ends: dict[str, float] = dict.fromkeys(done, 0.0)
    lanes = [0.0] * jobs
    waiting = list(cells)
    while waiting:
        now = min(lanes)
        ready = [c for c in waiting if all(ends.get(need, float("inf")) <= now for need in c.needs)]
        lane = lanes.index(now)
        if not ready:  # wait until the next training ends
            lanes[lane] = min(end for end in ends.values() if end > now)
            continue
        cell = ready[0]
        waiting.remove(cell)
        lanes[lane] = ends[cell.id] = now + hours[cell.id]
    return max(ends[cell.id] for cell in cells) if cells else 0.0


def describe(study: Study, price: Price, done: set[str]) -> list[str]:
    """Return the lines in which ``plan`` states the price."""
    lines = []
    for name, task in study.tasks.items():
        cells = [cell for cell in price.cells if cell.task == name]
        each = price.hours[cells[0].id]
        source = "measured" if name in price.measured else "from the study file"
        told = "hours unknown" if each is None else f"{_shown(each)} each ({source})"
        gpus = f" on {counted(task.gpus, 'GPU')}" if task.gpus else ""
        lines.append(f"{name}: {counted(len(cells), 'cell')}, {told}{gpus}")
    widths = [len(wave) for wave in waves(list(price.cells))]
    depth = " -> ".join(map(str, [*widths[:-1], counted(widths[-1], "cell")]))
    transfer = any(task.start for task in study.tasks.values())
    lines.append(f"graph: {depth}" + (", a transfer in between" if transfer else ""))
    lines.append(f"total: {price.left(done)}")
    return lines


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "cell"), counted(0, "cell")
    ('1 cell', '0 cells')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _shown(hours: float) -> str:
    return f"{hours:,.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"
