"""Files of one and the same cell: equal copies, other recipes, repetitions and contradictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .records import Reading, Record


@dataclass(frozen=True)
class Repetition:
    """A cell of the study that was trained once more, by the same recipe from the same seed.

    Attributes:
        first: The study's own record, the one that counts.
        again: What the other training found under the same conditions.
    """

    first: Record
    again: Record


def take(
    reading: Reading, known: list[Reading], notes: list[str], repetitions: list[Repetition]
) -> None:
    """Add a file to those of the same cell, as far as it is new and contradicts none.

    A planned cell that was trained elsewhere, too, is a repetition: the name of a cell is a hash of
    all that it depends on, but for the machine and the code that rounded its sums.

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
    clashes = [(twin, r) for twin, first, r in pairs if first.metrics != r.metrics]
    own = next((twin for twin, *_ in pairs if twin.own), None)
    if own and reading.planned and (clashes or _took(reading) != _took(own)):
        reading.refuted = True
        repetitions += [Repetition(first, again) for _, first, again in pairs]
        return
    if clashes:
        reading.refuted = True
        twin, record = clashes[0]
        # Of two copies neither is more to be believed; an own cell is.
        twin.refuted = not twin.own
        which = "both are" if twin.refuted else "it is"
        notes.append(
            f"{reading.path}: contradicts {twin.path}, the same cell by the same recipe with other "
            f"numbers ({record.protocol}); {which} left out"
        )
        return
    fresh = [record for record in reading.records if record.conditions not in there]
    if not fresh:
        notes.append(f"{reading.path}: left out, the same cell as {twins[0].path}")
    elif twins:
        notes.append(
            f"{reading.path}: the same cell as {twins[0].path}, but under another protocol, "
            "precision, data or recipe; shown, and not compared with it"
        )
    reading.records = fresh


def _took(reading: Reading) -> float | None:
    """Wall time of a training, which no other one shares to the tenth of a second."""
    return (reading.content.get("cost") or {}).get("wall_s")


def told_repetitions(repetitions: Sequence[Repetition]) -> str:
    """Return how many cells were trained once more, as the beginning of a sentence."""
    files = len({each.again.path for each in repetitions})
    return f"{'1 cell was' if files == 1 else f'{files} cells were'} trained once more"
