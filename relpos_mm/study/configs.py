"""The resolved config of a cell, and the options that bring the file there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from mmengine.config import Config

from relpos_mm.checks.leaves import flatten
from relpos_mm.engine.cli import load_config
from relpos_mm.engine.errors import UserError

from .spec import ROOT, Study, Task

EMBEDDED = "data/bdpq/"


def world_data(study: Study, world: str) -> str:
    """Return the folder of a world's data, with a slash behind it."""
    return f"data/studies/{study.name}/{world}/" if world else EMBEDDED


def resolve(study: Study, task: Task, variant: str, world: str) -> tuple[Config, dict[str, Any]]:
    """Return the config that a cell trains with, and its ``--cfg-options``.

    Raises:
        relpos_mm.engine.errors.UserError: There is no such file, or an option reaches nothing.
    """
    path = task.config.format(variant=variant)
    options = dict(task.options)
    if world:
        plain = load_config(str(ROOT / path))
        options.update(moved(plain, EMBEDDED, world_data(study, world)))
    return load_config(str(ROOT / path), options), options


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
