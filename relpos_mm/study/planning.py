"""The planner: which cells a study has, and that they may be compared."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

from mmengine.config import Config

from relpos_mm.engine.result import hashed_content

from .cell import Cell
from .configs import Files, resolve
from .proof import prove
from .spec import ROOT, Study, Task
from .steps import steps_of


def plan(study: Study) -> list[Cell]:
    """Return the cells of a study in an order in which each stands behind what it needs.

    Raises:
        relpos_mm.engine.errors.UserError: A config is missing, or cells of a task differ in more
            than ``position``; the difference is in the message.
    """
    files = Files()
    cells: dict[str, Cell] = {}
    by_place: dict[tuple[str, str, int, str], Cell] = {}
    for name, task in sorted(study.tasks.items(), key=lambda item: item[1].start is not None):
        for world in [""] if task.shared else study.worlds:
            found = {v: resolve(study, task, v, world, files) for v in study.variants}
            prove(
                {task.config.format(variant=v): config for v, (config, _) in found.items()},
                where=f"task {name}" + (f", world {world}" if world else ""),
            )
            for variant, (config, options) in found.items():
                for seed in study.seeds:
                    place = (variant, seed, world)
                    start = _start(study, task, place, by_place)
                    cell = _cell(study, name, place, config, start)
                    steps = steps_of(task, variant, cell, config, options, start)
                    cell = replace(cell, steps=tuple(steps))
                    cells[cell.id] = by_place[name, variant, seed, world] = cell
    return list(cells.values())


def _start(
    study: Study,
    task: Task,
    place: tuple[str, int, str],
    known: dict[tuple[str, str, int, str], Cell],
) -> Cell | None:
    if task.start is None:
        return None
    variant, seed, world = place
    shared = study.tasks[task.start].shared
    return known[(task.start, variant, seed, "" if shared else world)]


def _cell(
    study: Study, task: str, place: tuple[str, int, str], config: Config, start: Cell | None
) -> Cell:
    variant, seed, world = place
    needs = (start.id,) if start else ()
    depends = [hashed_content(config), seed, world, needs, *_beside(study, task, world)]
    digest = hashlib.sha256(json.dumps(depends, sort_keys=True, default=str).encode()).hexdigest()
    names = [task, variant, *([world] if world else []), f"s{seed}", digest[:8]]
    folder = study.folder / "-".join(names)
    inside = folder.is_relative_to(ROOT)
    return Cell(
        id=folder.name,
        study=study.name,
        task=task,
        variant=variant,
        seed=seed,
        world=world,
        needs=needs,
        folder=str(folder.relative_to(ROOT) if inside else folder),
        steps=(),
        gpus=study.tasks[task].gpus,
    )


def _beside(study: Study, task: str, world: str) -> list[dict[str, Any]]:
    """What the numbers depend on beside the config: data of a world, precision, processes."""
    recipe = study.tasks[task]
    chosen = {"knobs": study.worlds.get(world, {}), "amp": recipe.amp, "gpus": recipe.gpus}
    return [{key: value} for key, value in chosen.items() if value]
