"""The resolved config of a cell, and the options that bring the file there."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from mmengine.config import Config

from relpos_mm.checks.leaves import flatten, position_of
from relpos_mm.data.bdpq import Knobs
from relpos_mm.data.bdpq.scene import scene_splits
from relpos_mm.encodings import position_slug
from relpos_mm.engine.cli import read_config, settled
from relpos_mm.engine.errors import UserError
from relpos_mm.engine.metric_names import promised_names

from .spec import ROOT, Study, Task
from .strict import require, require_known

EMBEDDED = "data/bdpq/"


def world_data(study: Study, world: str) -> str:
    """Return the folder of a world's data, with a slash behind it."""
    return f"data/studies/{study.name}/{world}/" if world else EMBEDDED


class Files:
    """Config files, each read once: looking up a library's base takes a quarter of a second."""

    def __init__(self) -> None:
        self._read: dict[str, Config] = {}

    def load(self, path: str, options: dict[str, Any] | None = None) -> Config:
        """Return the config of a file, as :func:`relpos_mm.engine.cli.load_config` does."""
        if path not in self._read:
            self._read[path] = read_config(path)
        return settled(copy.deepcopy(self._read[path]), path, options)


def resolve(
    study: Study, task: Task, variant: str, world: str, files: Files
) -> tuple[Config, dict[str, Any]]:
    """Return the config that a cell trains with, and its ``--cfg-options``.

    Raises:
        relpos_mm.engine.errors.UserError: There is no such file, an option reaches nothing, or the
            config does not have the task's metrics, its splits, or the data of a world.
    """
    try:
        return _resolve(study, task, variant, world, files)
    except UserError as error:
        name = next((name for name, each in study.tasks.items() if each is task), "")
        raise UserError(f"{study.name}.yaml: tasks.{name}, variant {variant}: {error}") from None


def _resolve(
    study: Study, task: Task, variant: str, world: str, files: Files
) -> tuple[Config, dict[str, Any]]:
    path, data = task.config.format(variant=variant), world_data(study, world)
    found = (ROOT / path).is_file()
    require(found, f"Config not found: {ROOT / path}; correct the task's config or the variants")
    plain, options = files.load(str(ROOT / path)), dict(task.options)
    for key in options:
        _require_no_slip(plain, key)
    if world:
        place = moved(plain, EMBEDDED, data)
        require(bool(place), f"worlds: {path} reads nothing from {EMBEDDED}; set shared: true")
        options.update(place)
    config = files.load(str(ROOT / path), options) if options else plain
    try:
        position_slug(position_of(config) or [])
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path}: {error}") from None
    promised = promised_names(config.get("val_evaluator"))
    for metric in task.metrics if promised is not None else ():
        require_known(metric, promised or (), "metrics")
    for split in task.splits:
        places = another_split(config, split)
        del places["protocol.name"]
        lost = [each for each in places.values() if not _is_made(each.removeprefix(data))]
        embedded = any(value.startswith(data) for _, value in _texts(config, ("test",)))
        require(
            not (embedded and lost),
            f"splits: {split}: the embedded data have no {', '.join(lost)}; leave {split} out",
        )
    if task.tta:
        absent = [key for key in ("tta_model", "tta_pipeline") if key not in config]
        require(not absent, f"tta: {path} has no {' and no '.join(absent)}; leave tta out")
    return config, options


def _require_no_slip(config: Config, key: str) -> None:
    """Refuse a new last name that is nearly one of the config.

    ``--cfg-options`` lets it pass, because whoever gets it refuses strangers. In a study that would
    be after the cells before it have run.
    """
    *parents, last = key.split(".")
    node: Any = dict(config.items())
    for name in parents:
        if isinstance(node, (list, tuple)):
            node = node[int(name)] if name.isdigit() and int(name) < len(node) else None
        else:
            node = node.get(name) if isinstance(node, Mapping) else None
    if parents and isinstance(node, Mapping) and last not in node:
        near = get_close_matches(last, list(map(str, node)), n=1, cutoff=0.85)
        require(not near, f"options: the config has no {key}; did you mean {''.join(near)!r}?")


def _is_made(place: str) -> bool:
    """Return whether the generator of the embedded data makes this file or folder."""
    kind, _, split = place.strip("/").partition("/")
    made = ("train", "val") if kind == "cls" else tuple(scene_splits(Knobs()))
    return kind in ("cls", "img", "seg", "ann") and split.removesuffix(".json") in made


def moved(config: Config, old: str, new: str) -> dict[str, str]:
    """Return the options that replace the folder ``old`` by ``new`` in loaders and evaluators."""
    return {
        key: value.replace(old, new, 1)
        for key, value in _texts(config, ("train", "val", "test"))
        if value.startswith(old)
    }


def another_split(config: Config, split: str) -> dict[str, str]:
    """Return the options with which a test reads ``split`` where the config reads ``val``.

    Raises:
        UserError: The config's test data does not say ``val`` anywhere.
    """
    options = {
        key: re.sub(r"\bval\b", split, value)
        for key, value in _texts(config, ("test",))
        if re.search(r"\bval\b", value)
    }
    name = (config.get("protocol") or {}).get("name", "val")
    if not options or not re.search(r"\bval\b", name):
        raise UserError(
            f"splits: {split} takes the place of the word val in the test data and in "
            f"protocol.name, and {config.filename} does not have it in both"
        )
    options["protocol.name"] = re.sub(r"\bval\b", split, name)
    return options


def _texts(config: Config, parts: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for part in parts:
        for name in (f"{part}_dataloader", f"{part}_evaluator"):
            for key, value in flatten(config.get(name), name):
                if isinstance(value, str):
                    yield key, value


def as_text(value: Any) -> str:
    """Return a value as ``--cfg-options`` reads it."""
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(as_text, value))}]"
    return str(value)
