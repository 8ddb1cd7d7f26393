"""What a person sees of a plan and of a running study."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .cell import Cell
from .price import Price
from .runner import Progress
from .state import FINISHED, RUNNING, State

_SIGN = {
    "finished": "[green]●[/green]",
    "running": "[yellow]◐[/yellow]",
    "failed": "[red]✗[/red]",
    "half-done": "[yellow]○[/yellow]",
    "waiting": "[dim]·[/dim]",
}


def overview(cells: Sequence[Cell], states: dict[str, State], price: Price) -> Table:
    """Return the study as a table of variants by tasks, one sign per seed."""
    tasks = list(dict.fromkeys((cell.task, cell.world) for cell in cells))
    table = Table("variant", *(f"{task} {world}".strip() for task, world in tasks))
    for variant in dict.fromkeys(cell.variant for cell in cells):
        signs = [
            " ".join(
                _SIGN[states[cell.id].word]
                for cell in cells
                if (cell.variant, cell.task, cell.world) == (variant, *place)
            )
            for place in tasks
        ]
        table.add_row(variant, *signs)
    table.caption = how_far(cells, states, price)
    return table


def how_far(cells: Sequence[Cell], states: dict[str, State], price: Price) -> str:
    """Return how many cells are finished, and what the others take."""
    done = finished(states)
    return f"{len(done)} of {len(cells)} cells finished; {price.left(done)}"


def finished(states: dict[str, State]) -> set[str]:
    """Return the ids of the finished cells."""
    return {cell_id for cell_id, state in states.items() if state.word == FINISHED}


def running_lines(cells: Sequence[Cell], states: dict[str, State]) -> Table:
    """Return the cells that run, with the time that each training says it still needs."""
    table = Table.grid(padding=(0, 2))
    for cell in cells:
        state = states[cell.id]
        if state.word == RUNNING:
            eta = f"training has {state.eta} to go" if state.eta and state.step == "train" else ""
            table.add_row(cell.id, state.step, eta)
    return table


class Screen:
    """Keeps the overview on a terminal up to date; elsewhere one line per change of a cell.

    Args:
        cells: The cells.
        price: Gives the price when these cells are finished.
        console: Where to; standard output by default.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        price: Callable[[set[str]], Price],
        console: Console | None = None,
    ) -> None:
        self.cells, self._price_after = cells, price
        self._finished: set[str] | None = None
        self.console = console or Console(highlight=False, soft_wrap=True)
        self._live = Live(console=self.console, refresh_per_second=2)
        self._words: dict[str, str] = {}
        self._note = ""

    def __enter__(self) -> Screen:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *reason: object) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def show(self, progress: Progress) -> None:
        """Show how far the study is."""
        states = progress.states
        done = finished(states)
        changed = done != self._finished
        if changed:  # what they took prices the rest
            self._finished, self.price = done, self._price_after(done)
        if self.console.is_terminal:
            parts: list[RenderableType] = [
                overview(self.cells, states, self.price),
                running_lines(self.cells, states),
                Text(progress.note),
            ]
            self._live.update(Group(*parts))
            return
        for cell_id, state in states.items():
            if self._words.get(cell_id) != state.word:
                if cell_id in self._words or state.word != "waiting":
                    line = f"{cell_id}: {state.word} {state.step}".rstrip()
                    self.console.print(line, markup=False)
                self._words[cell_id] = state.word
        if changed:
            self.console.print(how_far(self.cells, states, self.price), markup=False)
        if progress.note and progress.note != self._note:
            self.console.print(progress.note, markup=False)
        self._note = progress.note
