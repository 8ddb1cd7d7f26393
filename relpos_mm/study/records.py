"""Result files as the report reads them: of this study's cells, or copied from elsewhere."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relpos_mm.checks.leaves import flatten
from relpos_mm.engine.evidence import evidence_stem

from .cell import Cell
from .spec import Study
from .state import sealed

# What else lies in the folders of cells and of reports.
_NO_RESULT = re.compile(
    r"(cell|curve|summary|probe_.*)\.json|evidence-.*|(result_)?\d{8}_\d{6}\.json"
)
_LOGS = "vis_data"
# Where a recipe stands in a config, and what in there does not change a number.
_RECIPE = ("model", "train_dataloader", "optim_wrapper", "param_scheduler", "train_cfg")
_LOADING = {"num_workers", "persistent_workers", "pin_memory", "prefetch_factor"}


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
    for path, owner in [*_own(cells), *((path, None) for path in _copied(more))]:
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
        if owner is not None:
            place = (owner, *place[1:])
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


def _own(cells: Iterable[Cell]) -> Iterator[tuple[Path, str]]:
    """The results of finished cells and their study; older forms of the study are not read.

    A cell that another study has alike may have been trained there and copied.
    """
    for cell in cells:
        if sealed(cell.path, cell.id) is not None:
            yield cell.path / "result.json", cell.study


def _copied(places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        if place.is_file():
            yield place
        else:
            files = (file for file in sorted(place.rglob("*.json")) if _LOGS not in file.parts)
            yield from (file for file in files if not _NO_RESULT.fullmatch(file.name))


def _place(content: Mapping[str, Any], studies: list[Study]) -> tuple[Any, ...] | None:
    cell = content["cell"] if isinstance(content.get("cell"), dict) else content
    task, variant, seed = cell.get("task"), cell.get("variant"), cell.get("seed")
    known = any(task in study.tasks and variant in study.variants for study in studies)
    if not known or not isinstance(seed, int):
        return None
    data = content.get("data_sha256") or ""
    return cell.get("study", ""), task, variant, seed, cell.get("world", ""), data


def _records(content: Mapping[str, Any], place: tuple[Any, ...], path: Path) -> Iterator[Record]:
    study, task, variant, seed, world, data = place
    wall = (content.get("cell") or {}).get("wall_s")
    tests, recipe = content.get("tests") or {}, _recipe(content)
    for part in [content, *(test for test in tests.values() if test.get("metrics"))]:
        protocol = part.get("protocol") or {}
        data_hash = part.get("data_sha256") or data
        conditions = [protocol, part.get("precision"), data_hash, recipe]
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


def _recipe(content: Mapping[str, Any]) -> str:
    """A hash of how the network was trained, the encodings and places of files left out."""
    config = content.get("config_content") or {}
    leaves = {
        key: value
        for part in _RECIPE
        for key, value in flatten(config.get(part), part)
        if not _LOADING.union({"position"}).intersection(key.split("."))
        and not (isinstance(value, str) and "/" in value)
    }
    processes = (content.get("cost") or {}).get("processes")
    text = json.dumps([leaves, processes], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _number(value: Any) -> float | None:
    good = isinstance(value, (int, float)) and math.isfinite(value)
    return float(value) if good else None
