"""What became of every tensor in a transfer: the record, the table, the one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rich.console import Console, Group
from rich.table import Table

Outcome = Literal["loaded", "resized", "new", "dropped", "problem"]

_TITLES: dict[tuple[Outcome, ...], str] = {
    ("loaded",): "Loaded",
    ("resized", "new"): "Resized or newly initialised",
    ("dropped",): "In the file, not carried",
    ("problem",): "Problems",
}


@dataclass(frozen=True)
class Entry:
    """One tensor: its outcome and why.

    Attributes:
        key: name in the config's model; the name in the file where the model has no such tensor.
        outcome: loaded (same values), resized, new (the model's initial value), dropped, problem.
        reason: why, with shapes where they matter.
    """

    key: str
    outcome: Outcome
    reason: str = ""


@dataclass
class Report:
    """All entries of one transfer and the facts about its two sides."""

    source: str
    sha256: str
    layout: str
    kind: str
    file_encoding: str
    config: str
    config_encoding: str
    model_tensors: int
    mode: str = "scale"
    encoding_mismatch_allowed: bool = False
    head_carried: bool = False
    whole: bool = False  # a whole model instead of a backbone
    converted_encoding: str = ""  # what conversions made of the file's
    other_options: list[str] = field(default_factory=list)  # encodings of both sides
    entries: list[Entry] = field(default_factory=list)

    def add(self, outcome: Outcome, keys: Iterable[str], reason: str = "") -> None:
        """Record the same outcome for several tensors."""
        self.entries += [Entry(key, outcome, reason) for key in keys]

    def of(self, *outcomes: Outcome) -> list[Entry]:
        """Entries with one of these outcomes."""
        return [entry for entry in self.entries if entry.outcome in outcomes]

    @property
    def position_transferred(self) -> bool:
        """Whether every position parameter of the config's model came from the file."""
        same = (self.converted_encoding or self.file_encoding) == self.config_encoding
        return same and not self.other_options

    @property
    def summary(self) -> str:
        """The one line that matters."""
        filled = len(self.of("loaded", "resized"))
        what = "backbone and head" if self.head_carried else "backbone"
        what = "model" if self.whole else what
        return (
            f"loaded {filled} of {self.model_tensors} {what} tensors "
            f"({len(self.of('resized'))} resized, {len(self.of('new'))} new, "
            f"{len(self.of('dropped'))} in the file not carried, "
            f"{len(self.of('problem'))} problems)"
        )

    def facts(self) -> dict[str, Any]:
        """Plain values that identify the transfer, for the output's meta and the json report."""
        known = {key: value for key, value in asdict(self).items() if key != "entries"}
        counts = {name: 0 for names in _TITLES for name in names}
        counts.update(Counter(entry.outcome for entry in self.entries))
        return known | {
            "position_transferred": self.position_transferred,
            "counts": counts,
            "summary": self.summary,
        }

    def to_dict(self) -> dict[str, Any]:
        """Facts and every entry, ready for json."""
        return self.facts() | {"entries": [asdict(entry) for entry in self.entries]}

    def problems(self) -> str:
        """The problems in a few lines: the first key of each reason and how many more it has."""
        lines = []
        for reason, keys in _by_reason(self.of("problem")).items():
            more = f" (and {len(keys) - 1} more)" if len(keys) > 1 else ""
            lines.append(f"{keys[0]}{more}: {reason}")
        return "\n".join(lines)

    def show(self, console: Console | None = None) -> None:
        """Print the report as tables, equal reasons in one row."""
        tables = []
        for outcomes, title in _TITLES.items():
            if entries := self.of(*outcomes):
                tables.append(_table(f"{title}: {len(entries)}", entries))
        console = console or Console()
        if not console.is_terminal:
            console.width = 120  # log files: long names on one line each
        console.print(Group(*tables))
        console.print(self.summary, soft_wrap=True, highlight=False)


def _by_reason(entries: Iterable[Entry]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for entry in entries:
        groups.setdefault(entry.reason, []).append(entry.key)
    return groups


def _table(title: str, entries: list[Entry]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("number", justify="right")
    table.add_column("tensors", overflow="fold")
    table.add_column("why", overflow="fold")
    for reason, keys in _by_reason(entries).items():
        shown = keys[0] if len(keys) == 1 else f"{keys[0]} ... {keys[-1]}"
        table.add_row(str(len(keys)), shown, reason)
    return table
