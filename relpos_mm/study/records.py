"""Result files as the report reads them: of this study's cells, or copied from elsewhere."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .cell import Cell
from .spec import Study
from .state import sealed

# What else lies in the folders of cells.
_NO_RESULT = re.compile(
    r"cell\.json|curve\.json|predictions\..*|probe_.*\.json|result_\d+_\d+\.json"
)


@dataclass(frozen=True)
class Record:
    """What one cell found under one protocol.

    Attributes:
        task: The study's name of the task.
        variant: Slug of the encoding.
        seed: Seed of the training.
        world: Name of the data's world, empty in a study with one.
        conditions: Everything that must be equal before two numbers may be compared: protocol,
            precision and data, as text.
        protocol: Its name.
        metrics: By name; None where there is nothing to measure.
        cost: As in ``result.json``, with the wall time of all attempts.
        path: The result file.
        study: Name of the study that trained it, where the file says so.
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


@dataclass
class Collection:
    """All records of a report.

    Attributes:
        records: Records, each cell and protocol once.
        notes: What was left out, and why.
        versions: Sets of library versions that trained the cells.
    """

    records: list[Record] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)


def collect(
    studies: Iterable[Study], cells: Iterable[Cell], more: Iterable[Path] = ()
) -> Collection:
    """Read the results of the planned cells and of ``more`` files and folders.

    A file without a ``cell`` entry is placed by its own task, variant and seed. Files that cannot
    be read, are no result or repeat one that was read before are named in the notes.
    """
    studies = list(studies)
    found = Collection()
    seen: dict[tuple[Any, ...], dict[str, Path]] = {}
    versions: dict[str, None] = {}
    for path in [*_own(cells), *_copied(more)]:
        try:
            content = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            found.notes.append(f"{path}: cannot be read ({error})")
            continue
        if not isinstance(content, dict) or not isinstance(content.get("metrics"), dict):
            found.notes.append(f"{path}: is no result file")
            continue
        place = _place(content, studies)
        if place is None:
            found.notes.append(f"{path}: names no task, variant and seed of these studies")
            continue
        # A file that names no study may be of any.
        study, others = place[0], seen.setdefault(place[1:], {})
        twins = [other for name, other in others.items() if name == study or "" in (name, study)]
        if twins:
            found.notes.append(f"{path}: left out, the same cell as {twins[0]}")
            continue
        others[study] = path
        versions[", ".join(f"{k} {v}" for k, v in (content.get("versions") or {}).items())] = None
        found.records += _records(content, place, path)
    found.versions = [text for text in versions if text]
    return found


def _own(cells: Iterable[Cell]) -> Iterator[Path]:
    """The results of finished cells; what an earlier form of the study left behind is not read."""
    for cell in cells:
        if sealed(cell.path, cell.id) is not None:
            yield cell.path / "result.json"


def _copied(places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        if place.is_file():
            yield place
        else:
            files = sorted(place.rglob("*.json"))
            yield from (file for file in files if not _NO_RESULT.fullmatch(file.name))


def _place(content: Mapping[str, Any], studies: list[Study]) -> tuple[Any, ...] | None:
    cell = content.get("cell") or content
    task, variant, seed = cell.get("task"), cell.get("variant"), cell.get("seed")
    known = any(task in study.tasks and variant in study.variants for study in studies)
    if not known or not isinstance(seed, int):
        return None
    data = content.get("data_sha256") or ""
    return cell.get("study", ""), task, variant, seed, cell.get("world", ""), data


def _records(content: Mapping[str, Any], place: tuple[Any, ...], path: Path) -> Iterator[Record]:
    study, task, variant, seed, world, data = place
    wall = (content.get("cell") or {}).get("wall_s")
    tests = list((content.get("tests") or {}).values())
    for part in [content, *tests]:
        protocol = part.get("protocol") or {}
        conditions = [protocol, part.get("precision"), part.get("data_sha256") or data]
        cost = {**(part.get("cost") or {}), **({"wall_s": wall} if wall else {})}
        yield Record(
            task,
            variant,
            seed,
            world,
            json.dumps(conditions, sort_keys=True),
            str(protocol.get("name", "unnamed")),
            {name: _number(value) for name, value in part["metrics"].items()},
            cost if part is content else {},
            path,
            study,
        )


def _number(value: Any) -> float | None:
    good = isinstance(value, (int, float)) and math.isfinite(value)
    return float(value) if good else None
