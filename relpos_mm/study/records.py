"""Result files as the report reads them: of this study's cells, or copied from elsewhere."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from relpos_mm.checks.leaves import position_of
from relpos_mm.engine.errors import UserError
from relpos_mm.engine.evidence import evidence_stem

from .cell import Cell
from .cell_run import DONE
from .configs import Files, resolve
from .recipe import Training, bare_name, position_in, training_of
from .result_file import read_result
from .spec import Study
from .state import sealed
from .twins import Repetition, take, told_versions

# What else lies in the folders of cells and of reports.
_NO_RESULT = re.compile(
    r"(cell|curve|summary|probe_.*)\.json|evidence-.*|(result_)?\d{8}_\d{6}\.json"
)
_LOGS = "vis_data"


@dataclass(frozen=True)
class Record:
    """What one cell found under one protocol.

    Attributes:
        task: The study's name of the task.
        variant: Slug of the encoding.
        seed: Seed of the training.
        world: Name of the data's world, empty in a study with one.
        conditions: Everything that must be equal before two numbers may be compared: protocol,
            precision, data and recipe (but for ``position`` and seed), as text.
        protocol: Its name.
        metrics: By name; None where there is nothing to measure.
        cost: As in ``result.json``, with the wall time of all attempts.
        path: The result file.
        study: Name of the study that it counts in; empty where the file names none.
        unknown: What of the conditions the file does not say; such numbers are never compared.
    """

    task: str
    variant: str
    seed: int
    world: str
    conditions: str
    protocol: str
    metrics: Mapping[str, float | None]
    cost: Mapping[str, Any]
    path: Path
    study: str = ""
    unknown: str = ""

    def evidence(self, ending: str) -> Path | None:
        """Return a file that the run kept beside its result under this protocol, if it is there.

        A result under another name was copied; what lies beside it may be of another run.
        """
        file = self.path.with_name(f"{evidence_stem({'name': self.protocol})}.{ending}")
        return file if self.path.name == "result.json" and file.is_file() else None


@dataclass
class Collection:
    """All records of a report.

    Attributes:
        records: Records, each cell and protocol once.
        notes: What was left out, and why.
        versions: Sets of versions of code and libraries that trained the cells.
        repetitions: Cells that were trained once more elsewhere; they are not in ``records``.
    """

    records: list[Record] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    repetitions: list[Repetition] = field(default_factory=list)


@dataclass
class Reading:
    """One file on its way into the records of one study."""

    path: Path
    content: dict[str, Any]
    place: tuple[Any, ...]
    study: str
    own: bool
    planned: bool
    training: Training
    records: list[Record] = field(default_factory=list)
    refuted: bool = False
    again: bool = False


def collect(
    studies: Iterable[Study], cells: Iterable[Cell], more: Iterable[Path] = ()
) -> Collection:
    """Read the results of the planned cells and of ``more`` files and folders.

    A file without a ``cell`` entry is placed by its own task, variant and seed. Files that cannot
    be read, are no result, belong nowhere, copy or contradict another one are named in the notes.
    """
    studies, cells = list(studies), list(dict.fromkeys(cells))
    found = Collection()
    readings = list(_readings(studies, cells, more, found.notes))
    _settle_starts(readings)
    taken: dict[tuple[Any, ...], list[Reading]] = {}
    for reading in _rightly_named(readings, studies, found.notes):
        reading.records = list(_records(reading, found.notes))
        twins = taken.setdefault(reading.place, [])
        take(reading, twins, found.notes, found.repetitions)
    kept = [each for twins in taken.values() for each in twins if not each.refuted]
    found.records = [record for reading in kept for record in reading.records]
    told = (told_versions(each.content) for each in kept if each.records)
    found.versions = list(dict.fromkeys(filter(None, told)))
    return found


def spoilt(cell: Cell) -> str:
    """Return what is wrong with the result of a cell whose steps are all done, or nothing."""
    path = cell.path / "result.json"
    marked = sealed(cell.path, cell.id) is not None
    if not marked and not all((cell.path / DONE / step.name).exists() for step in cell.steps):
        return ""
    try:
        read_result(path)
    except UserError as error:
        return f"{path}: {error}"
    return "" if marked else f"{path}: is not marked as the result of this cell"


def _readings(
    studies: list[Study], cells: list[Cell], more: Iterable[Path], notes: list[str]
) -> Iterator[Reading]:
    """Read own and copied files in this order and place them; those of other studies are counted.

    A cell that another study has alike, found by its name, may have been trained there.
    """
    planned: dict[str, set[str]] = {}
    for cell in cells:
        planned.setdefault(cell.id, set()).add(cell.study)
    done = (cell for cell in cells if sealed(cell.path, cell.id) is not None)
    files = [(cell.path / "result.json", cell.study) for cell in done]
    foreign: dict[str, int] = {}
    for path, owner in [*files, *((path, None) for path in _copied(more))]:
        try:
            content = read_result(path)
        except UserError as error:
            notes.append(f"{path}: {error}")
            continue
        cell_of = content.get("cell") or {}
        named, alike = cell_of.get("study") or "", planned.get(str(cell_of.get("id")), set())
        names = [study.name for study in studies if study.name in {named, *alike}]
        if owner is not None:
            names = [owner]
        elif not named:
            names = names or [""]
        elif not names:
            foreign[named] = foreign.get(named, 0) + 1
            continue
        place = _place(cell_of or content)
        for name in names:
            if problem := _misplaced(place, [s for s in studies if name in ("", s.name)]):
                notes.append(f"{path}: {problem}")
                continue
            training = training_of(content, *place[1:3])
            yield Reading(path, content, place, name, owner is not None, bool(alike), training)
    if foreign:
        told = ", ".join(f"{name} {count}" for name, count in foreign.items())
        notes.append(f"results of other studies were left out: {told}")


def _place(said: Mapping[str, Any]) -> tuple[Any, ...]:
    return (*(said.get(key) for key in ("task", "variant", "seed")), said.get("world") or "")


def _misplaced(place: tuple[Any, ...], studies: list[Study]) -> str:
    """Return why a file belongs to none of the studies, or nothing."""
    task, variant, seed, world = place
    known = [study for study in studies if task in study.tasks and variant in study.variants]
    if not known or seed is None:
        return "names no task, variant and seed of these studies"
    worlds = [w for s in known for w in ([""] if s.tasks[task].shared else s.worlds)]
    if world not in worlds:
        wanted = ", ".join(map(repr, dict.fromkeys(worlds)))
        return f"left out, its world is {world!r}, and {task} has {wanted}"
    return ""


def _settle_starts(readings: Sequence[Reading]) -> None:
    """Give resumed trainings the start of the other cells of the plan.

    A resumed training names only its own checkpoint. Of a planned cell, whose name is a hash that
    holds its start, the start is that of its fellows; of any other it is unknown.
    """
    for reading in readings:
        if reading.training.start is not None:
            continue
        same = [
            each
            for each in readings
            if each.training.base == reading.training.base and each.training.start is not None
        ]
        own = {each.training.start for each in same if each.own}
        starts = own or {each.training.start for each in same if each.planned}
        if reading.planned and len(starts) <= 1:
            reading.training = replace(reading.training, start=next(iter(starts), "as planned"))
        else:
            unknown = (*reading.training.unknown, "start (resumed)")
            reading.training = replace(reading.training, unknown=unknown)


def _rightly_named(
    readings: Iterable[Reading], studies: list[Study], notes: list[str]
) -> Iterator[Reading]:
    """Leave out files whose encodings are not those that the study has under this name.

    Where the study's config cannot be read, the first file of a name says what it stands for.
    """
    files = Files()
    meant: dict[tuple[str, str], str] = {}
    for reading in readings:
        task, variant = reading.place[:2]
        position = position_in(reading.content)
        if position is None:
            yield reading
            continue
        if (task, variant) not in meant:
            of = [study for study in studies if reading.study in ("", study.name)]
            meant[task, variant] = _planned_position(of, task, variant, files) or position
        if position == meant[task, variant]:
            yield reading
        else:
            notes.append(
                f"{reading.path}: left out, it is called {variant}, but its encodings are "
                f"{position} and not {meant[task, variant]}"
            )


def _planned_position(studies: list[Study], task: str, variant: str, files: Files) -> str | None:
    for study in studies:
        if task in study.tasks and variant in study.variants:
            try:
                config, _ = resolve(study, study.tasks[task], variant, "", files)
            except UserError:
                continue
            return json.dumps(position_of(config), sort_keys=True)
    return None


def _copied(places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        if place.is_file():
            yield place
        else:
            files = (file for file in sorted(place.rglob("*.json")) if _LOGS not in file.parts)
            yield from (file for file in files if not _NO_RESULT.fullmatch(file.name))


def _records(reading: Reading, notes: list[str]) -> Iterator[Record]:
    content, training = reading.content, reading.training
    task, variant, seed, world = reading.place
    wall = (content.get("cell") or {}).get("wall_s")
    last = bare_name(content.get("checkpoint"), variant, seed)
    tests = content.get("tests") or {}
    seen = set()
    for name, part in [
        ("", content),
        *((n, t) for n, t in tests.items() if t and t.get("metrics")),
    ]:
        protocol, data = part.get("protocol") or {}, part.get("data_sha256")
        tested = bare_name(part.get("checkpoint"), variant, seed)
        recipe = training.recipe if tested == last else f"{training.recipe} at {tested}"
        unknown = [*training.unknown, *([] if data else ["data_sha256"])]
        conditions = [protocol, part.get("precision"), data, recipe]
        if unknown:  # one variant a group, so that no two stand in a row
            conditions.append([variant, *unknown])
        key = json.dumps(conditions, sort_keys=True)
        if key in seen:
            notes.append(f"{reading.path}: tests.{name} left out, it repeats another protocol")
            continue
        seen.add(key)
        cost = {**(part.get("cost") or {}), **({"wall_s": wall} if wall else {})}
        yield Record(
            task,
            variant,
            seed,
            world,
            key,
            str(protocol.get("name", "unnamed")),
            dict(_numbers(part["metrics"], reading.path, notes)),
            {} if name else cost,
            reading.path,
            reading.study,
            ", ".join(unknown),
        )


def _numbers(
    metrics: Mapping[str, Any], path: Path, notes: list[str]
) -> Iterator[tuple[str, float | None]]:
    for name, value in metrics.items():
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not good and value is not None:
            notes.append(f"{path}: metrics.{name} is {json.dumps(value)[:40]}, no number")
        yield name, float(value) if good and math.isfinite(value) else None
