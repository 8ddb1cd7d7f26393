"""The study file: what is compared, on what, how often, and where it runs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from relpos_mm.data.bdpq import Knobs
from relpos_mm.engine.errors import UserError

from .paper import PAPERS
from .strict import read_fields, read_yaml, require, require_known, require_once, typed

ROOT = Path(__file__).resolve().parents[2]
LEVELS = ("mechanism", "benchmark")
_SEEDS = 2**32  # NumPy takes none from here on
# Options that are not the task's to set, with the place that sets them.
_OURS = {
    "randomness": "the seed is the cell's; list seeds at the top of the study",
    "position": "it is what variants differ in; write a config per variant",
    "load_from": "name the task to start from in `start`, or weights in the config",
    "work_dir": "every cell has its own folder",
    "resume": "every cell resumes from its own folder",
}


@dataclass(frozen=True)
class Task:
    """One column of the study.

    Attributes:
        config: Path of the config, with ``{variant}`` in it.
        metrics: Names of ``result.json`` that the report compares; the first is the main one.
        start: Task whose model of the same variant and seed this one starts from.
        options: ``--cfg-options`` of every cell of the task.
        splits: More validation splits to test on, by the word that replaces ``val``.
        tta: Also test with the config's test-time augmentation.
        gpus: Processes of a cell, one GPU each; 0 is one process on the CPU.
        hours: Expected wall time of a cell, for the price; replaced by what finished cells took.
        amp: Mixed precision.
        shared: With several worlds: train once, on the data that the config names.
    """

    config: str
    metrics: tuple[str, ...]
    start: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    splits: tuple[str, ...] = ()
    tta: bool = False
    gpus: int = 0
    hours: float | None = None
    amp: bool = False
    shared: bool = False


@dataclass(frozen=True)
class Question:
    """A family of comparisons: Holm's correction runs inside it.

    Attributes:
        name: What is asked, as the report prints it.
        pairs: ``(variant, control)``: the difference is the first minus the second.
    """

    name: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Executor:
    """Where cells run.

    Attributes:
        kind: ``local`` (processes of this machine) or ``slurm`` (through submitit).
        jobs: Cells at a time.
        parameters: Of ``submitit.AutoExecutor.update_parameters``, for Slurm.
    """

    kind: str = "local"
    jobs: int = 1
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """A study file; see docs/study.md for its keys."""

    name: str
    title: str
    variants: tuple[str, ...]
    seeds: tuple[int, ...]
    tasks: dict[str, Task]
    questions: tuple[Question, ...]
    level: str = "benchmark"
    data: str | None = None
    worlds: dict[str, dict[str, Any]] = field(default_factory=lambda: {"": {}})
    executor: Executor = field(default_factory=Executor)
    paper: str | None = None
    remarks: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where the cells of the study live."""
        return ROOT / "work_dirs" / "studies" / self.name


def read_study(path: str | Path) -> Study:
    """Read a study file (YAML); a bare name is looked up in ``configs/studies/``.

    Raises:
        UserError: The file is missing, or a key or value is not one of a study; the message names
            it.
    """
    asked, path = str(path), Path(path)
    here = ROOT / "configs" / "studies" / f"{path.name.removesuffix('.yaml')}.yaml"
    if not os.path.isfile(path) and path.parent == Path() and os.path.isfile(here):
        path = here
    if not os.path.isfile(path):  # pathlib's is_file raises on a name that is too long
        known = ", ".join(sorted(p.stem for p in here.parent.glob("*.yaml")))
        kind = " (a folder, not a file)" if asked and os.path.isdir(path) else ""
        raise UserError(
            f"Study not found: {asked or repr(asked)}{kind}. Studies in configs/studies/: {known}"
        )
    try:
        return parse_study(path.stem, read_yaml(path))
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def parse_study(name: str, content: Any) -> Study:
    """Build a study from the content of its file.

    Raises:
        UserError: As :func:`read_study`, without the file's name.
    """
    _require_name(name, "the file's name", r"[\w.-]+", "letters, digits, _, - and .")
    if isinstance(content, Mapping) and isinstance(content.get("seeds"), list):
        _require_seeds(content["seeds"])
    given = read_fields(Study, content, apart=frozenset({"control", "questions"}))
    variants = given["variants"]
    for variant in variants:
        _require_name(variant, "variants", r"[\w.-]+", "letters, digits, _, - and .")
    require_once(variants, "variants")
    stated, control = given.pop("questions", None), given.pop("control", None)
    require(bool(stated) != bool(control), "state either control or questions")
    asked = _questions(stated, variants) if stated else _against(control, variants)
    study = Study(name=name, questions=asked, **given)
    levels = ", ".join(LEVELS)
    require(study.level in LEVELS, f"level is {study.level!r}, not one of {levels}")
    if study.paper is not None:
        require_known(study.paper, PAPERS, "paper")
    kind, jobs = study.executor.kind, study.executor.jobs
    require(kind in ("local", "slurm"), f"executor.kind: {kind!r} is neither local nor slurm")
    require(jobs >= 1, f"executor.jobs: {jobs} must be at least 1")
    for key, task in study.tasks.items():
        _require_name(key, "tasks", r"[\w-]+", "letters, digits, _ and -")
        _check_task(f"tasks.{key}", task, study)
    require(study.data in (None, "bdpq"), f"data is {study.data!r}; bdpq is the one made here")
    if "worlds" in given:
        require(study.data == "bdpq", "worlds need data: bdpq")
        _check_worlds(study.worlds)
    return study


def knob_settings(world: Mapping[str, Any]) -> list[str]:
    """Return the knobs of a world as ``tools/data.py make-mini --set`` takes them."""
    return [
        f"{name}={','.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in world.items()
    ]


def _require_name(name: str, where: str, form: str, words: str) -> None:
    good = re.fullmatch(form, name) and name.strip(".")
    remedy = f"take {words} only, and not dots alone"
    require(bool(good), f"{where}: {name!r} would be in the names of folders; {remedy}")


def _require_seeds(seeds: list[Any]) -> None:
    whole = all(type(seed) is int and 0 <= seed < _SEEDS for seed in seeds)
    require(
        whole and len(set(seeds)) == len(seeds),
        f"seeds: {seeds!r} are no different numbers; write whole numbers from 0 to {_SEEDS - 1}, "
        "each once",
    )


def _check_task(where: str, task: Task, study: Study) -> None:
    rest = task.config.replace("{variant}", "")
    require(rest != task.config, f"{where}.config must contain {{variant}}, got {task.config!r}")
    braces = f"{where}.config: {task.config!r} has braces besides {{variant}}; take them out"
    require(not set(rest) & set("{}"), braces)
    start = study.tasks.get(task.start) if task.start is not None else None
    require(
        task.start is None or (start is not None and start.start is None),
        f"{where}.start: {task.start!r} is no task that itself starts from nothing",
    )
    require(
        not (task.shared and start and not start.shared and set(study.worlds) != {""}),
        f"{where}.shared: {task.start!r}, where it starts, is not shared; share both or neither",
    )
    require_once(task.metrics, f"{where}.metrics")
    require_once(task.splits, f"{where}.splits")
    for split in task.splits:
        _require_name(split, f"{where}.splits", r"[\w-]+", "letters, digits, _ and -")
        require(split != "val", f"{where}.splits: 'val' is tested anyway; leave it out")
    require(task.gpus >= 0, f"{where}.gpus: {task.gpus} is below 0; 0 is one process on the CPU")
    hours = task.hours or 0.0
    require(0 <= hours < inf, f"{where}.hours: {hours} is no time; write hours of 0 or more")
    for key in task.options:
        names = key.split(".")
        remedy = _OURS.get("position" if "position" in names else names[0], "")
        require(not remedy, f"{where}.options sets {key!r}: {remedy}")


def _check_worlds(worlds: Mapping[str, Mapping[str, Any]]) -> None:
    require(bool(worlds), "worlds: {} has none; name one, or leave the key out")
    made: dict[Knobs, str] = {}
    for world, knobs in worlds.items():
        _require_name(world, "worlds", r"[\w.]+", "letters, digits, _ and .")
        try:
            recipe = Knobs.parse(knob_settings(knobs))
        except ValueError as error:
            raise UserError(f"worlds.{world}: {error}") from None
        twin = made.setdefault(recipe, world)
        require(twin == world, f"worlds: {world!r} has the knobs of {twin!r}; keep one of them")


def _against(control: Any, variants: tuple[str, ...]) -> tuple[Question, ...]:
    require(typed(control, str, "control") in variants, f"control {control!r} is no variant")
    pairs = tuple((variant, control) for variant in variants if variant != control)
    alone = f"control: {control!r} is the only variant; name another to compare with it"
    require(bool(pairs), alone)
    return (Question(f"against {control}", pairs),)


def _questions(stated: Any, variants: tuple[str, ...]) -> tuple[Question, ...]:
    questions = []
    for name, lines in typed(stated, dict[str, tuple[str, ...]], "questions").items():
        where = f"questions.{name}"
        require(bool(lines), f"{where} compares nothing; write [variant - control, ...]")
        pairs = [_pair(where, line, variants) for line in lines]
        for at, (one, other) in enumerate(pairs):
            again = {(one, other), (other, one)} & set(pairs[:at])
            require(not again, f"{where}: '{one} - {other}' is asked already; keep one of the two")
        questions.append(Question(name, tuple(pairs)))
    return tuple(questions)


def _pair(where: str, line: str, variants: tuple[str, ...]) -> tuple[str, str]:
    one, minus, other = line.partition(" - ")
    good = bool(minus) and one in variants and other in variants and one != other
    require(good, f"{where}: {line!r} is not 'variant - control' of {list(variants)}")
    return one, other
