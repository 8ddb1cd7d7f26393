"""The study file: what is compared, on what, how often, and where it runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from relpos_mm.engine.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
LEVELS = ("mechanism", "benchmark")


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
    path = Path(path)
    here = ROOT / "configs" / "studies" / f"{path.name.removesuffix('.yaml')}.yaml"
    if not path.is_file() and path.parent == Path() and here.is_file():
        path = here
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in here.parent.glob("*.yaml")))
        raise UserError(f"Study not found: {path}. Studies in configs/studies/: {known}")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not YAML: {error}") from None
    try:
        return parse_study(path.stem, content)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def parse_study(name: str, content: Any) -> Study:
    """Build a study from the content of its file.

    Raises:
        UserError: As :func:`read_study`, without the file's name.
    """
    given = _known(content, Study, "the study", {"control"})
    for key in ("title", "variants", "seeds", "tasks"):
        if not given.get(key):
            raise UserError(f"{key} is missing")
    given["name"] = name
    given["variants"] = tuple(map(str, given["variants"]))
    given["seeds"] = _seeds(given["seeds"])
    given["tasks"] = {
        key: _task(key, value, given["tasks"]) for key, value in given["tasks"].items()
    }
    given["questions"] = _questions(given)
    given.pop("control", None)
    if "executor" in given:
        given["executor"] = Executor(**_known(given["executor"], Executor, "executor"))
    study = Study(**given)
    _require(study.level in LEVELS, f"level is {study.level!r}, not one of {', '.join(LEVELS)}")
    _require(study.executor.kind in ("local", "slurm"), "executor.kind is neither local nor slurm")
    _require(study.executor.jobs >= 1, "executor.jobs must be at least 1")
    _require(study.data in (None, "bdpq"), f"data is {study.data!r}; bdpq is the one made here")
    named = set(study.worlds) - {""}
    _require(not named or study.data == "bdpq", "worlds need data: bdpq")
    strange = [world for world in named if not re.fullmatch(r"[\w.]+", world)]
    _require(not strange, f"worlds: {strange} may hold letters, digits, _ and . only")
    return study


def _known(content: Any, cls: type, where: str, more: set[str] | None = None) -> dict[str, Any]:
    if not isinstance(content, Mapping):
        raise UserError(f"{where} must be keys with values, got {content!r}")
    names = {item.name for item in fields(cls)} - {"name"} | (more or set())
    for key in content:
        if key not in names:
            near = get_close_matches(str(key), names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"keys are {', '.join(sorted(names))}"
            raise UserError(f"{where} has no key {key!r}; {hint}")
    return dict(content)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise UserError(message)


def _seeds(value: Any) -> tuple[int, ...]:
    whole = isinstance(value, list) and all(type(seed) is int and seed >= 0 for seed in value)
    _require(whole and len(set(value)) == len(value), f"seeds: {value!r} are no different numbers")
    return tuple(value)


def _task(key: str, content: Any, tasks: Mapping[str, Any]) -> Task:
    given = _known(content, Task, f"tasks.{key}")
    for needed in ("config", "metrics"):
        _require(bool(given.get(needed)), f"tasks.{key}.{needed} is missing")
    _require("{variant}" in given["config"], f"tasks.{key}.config must contain {{variant}}")
    start = given.get("start")
    _require(
        start is None or (start in tasks and not tasks[start].get("start")),
        f"tasks.{key}.start: {start!r} is no task that itself starts from nothing",
    )
    given["metrics"] = tuple(given["metrics"])
    given["splits"] = tuple(given.get("splits", ()))
    seeded = [name for name in given.get("options", {}) if name.startswith("randomness")]
    _require(not seeded, f"tasks.{key}.options sets {seeded}: the seed is the cell's")
    return Task(**given)


def _questions(given: Mapping[str, Any]) -> tuple[Question, ...]:
    variants = given["variants"]
    stated, control = given.get("questions"), given.get("control")
    _require(bool(stated) != bool(control), "state either control or questions")
    if control:
        _require(control in variants, f"control {control!r} is no variant")
        pairs = tuple((variant, control) for variant in variants if variant != control)
        return (Question(f"against {control}", pairs),)
    if not isinstance(stated, Mapping):
        raise UserError("questions must be 'name: [variant - control, ...]'")
    questions = []
    for name, lines in stated.items():
        pairs = tuple(_pair(name, line, variants) for line in lines)
        questions.append(Question(str(name), pairs))
    return tuple(questions)


def _pair(name: str, line: Any, variants: tuple[str, ...]) -> tuple[str, str]:
    one, minus, other = str(line).partition(" - ")
    good = bool(minus) and one in variants and other in variants and one != other
    _require(good, f"questions.{name}: {line!r} is not 'variant - control' of {list(variants)}")
    return one, other
