"""Files of one and the same cell: equal copies, other recipes, repetitions and contradictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .records import Reading, Record


@dataclass(frozen=True)
class Repetition:
    """A cell of the study that was trained once more, by the same recipe from the same seed.

    Attributes:
        first: The study's own record, the one that counts.
        again: What the other training found under the same conditions.
        versions: Code and libraries of the other training, as text.
    """

    first: Record
    again: Record
    versions: str


def take(
    reading: Reading, known: list[Reading], notes: list[str], repetitions: list[Repetition]
) -> None:
    """Add a file to those of the same cell, as far as it is new and contradicts none.

    A planned cell that lies finished in its own place and was trained elsewhere, too, is a
    repetition: the name of a cell is a hash of all that it depends on but for machine, libraries
    and code. One repetition of a cell is kept, the first.

    Args:
        reading: The file; loses the records that do not count.
        known: Files of this cell so far; ``reading`` is appended.
        notes: What is left out, and why, is appended.
        repetitions: Pairs of the study's own records and those of ``reading`` are appended.
    """
    # A file that names no study may be of any.
    twins = [
        each for each in known if each.study == reading.study or "" in (each.study, reading.study)
    ]
    known.append(reading)
    there = {record.conditions: (twin, record) for twin in twins[::-1] for record in twin.records}
    pairs = [(*there[r.conditions], r) for r in reading.records if r.conditions in there]
    fresh = [record for record in reading.records if record.conditions not in there]
    own = next((twin for twin, *_ in pairs if twin.own), None)
    if own and reading.planned and _is_another_training(reading, own):
        reading.again, reading.records = True, fresh
        if earlier := next((twin for twin in twins if twin.again), None):
            why = "a further training of"
            if not _is_another_training(reading, earlier):
                why = "the same training as"
            notes.append(f"{reading.path}: left out, {why} the repeated cell {earlier.path}")
            reading.records = []
            return
        versions = told_versions(reading.content)
        repetitions += [Repetition(one, again, versions) for twin, one, again in pairs if twin.own]
    elif clash := next(((twin, r) for twin, one, r in pairs if one.metrics != r.metrics), None):
        twin, record = clash
        # Of two copies neither is more to be believed; an own cell is.
        reading.refuted, twin.refuted = True, not twin.own
        which = "both are" if twin.refuted else "it is"
        notes.append(
            f"{reading.path}: contradicts {twin.path}, the same cell by the same recipe with other "
            f"numbers ({record.protocol}); {which} left out"
        )
        return
    elif not fresh:
        notes.append(f"{reading.path}: left out, the same cell as {twins[0].path}")
    if twins and fresh:
        notes.append(
            f"{reading.path}: the same cell as {twins[0].path}, but under another protocol, "
            "precision, data or recipe; shown, and not compared with it"
        )
    reading.records = fresh


def _is_another_training(one: Reading, other: Reading) -> bool:
    """Whether two files tell of two trainings: of one, time, speed and memory are the same."""
    costs = one.content.get("cost"), other.content.get("cost")
    return all(costs) and costs[0] != costs[1]


def told_versions(content: Mapping[str, Any]) -> str:
    """Return what a result file says of code and libraries, as text."""
    return ", ".join(f"{name} {which}" for name, which in (content.get("versions") or {}).items())


def told_repetitions(repetitions: Sequence[Repetition]) -> str:
    """Return how many cells were trained once more, as the beginning of a sentence."""
    cells = len({each.first.path for each in repetitions})
    return f"{'1 cell was' if cells == 1 else f'{cells} cells were'} trained once more"
