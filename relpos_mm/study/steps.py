"""What a cell runs: this project's own commands, in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmengine.config import Config

from .cell import LAST, Cell, Step
from .configs import another_split, as_text
from .spec import Task


def steps_of(
    task: Task,
    variant: str,
    cell: Cell,
    config: Config,
    options: Mapping[str, Any],
    start: Cell | None,
) -> list[Step]:
    """Return the commands of a cell: transfer of the start, training, tests."""
    path, folder = task.config.format(variant=variant), cell.folder
    steps = []
    train = {"randomness.seed": cell.seed, **options}
    if start is not None:
        weights = f"{folder}/start.pth"
        source = f"{LAST}{start.folder}"
        steps.append(Step("transfer", ("tools/transfer.py", source, weights, "--config", path)))
        train["load_from"] = weights
    flags = ["--resume", *(["--amp"] if task.amp else [])]
    steps.append(Step("train", _tool(task, "train", path, [], folder, train, flags)))
    checkpoint = [f"{LAST}{folder}"]
    for split in task.splits:
        there = {**options, **another_split(config, split)}
        steps.append(Step(f"test-{split}", _tool(task, "test", path, checkpoint, folder, there)))
    if task.tta:
        argv = _tool(task, "test", path, checkpoint, folder, options, ["--tta"])
        steps.append(Step("test-tta", argv))
    return steps


def _tool(
    task: Task,
    tool: str,
    config: str,
    more: list[str],
    folder: str,
    options: Mapping[str, Any],
    flags: list[str] | None = None,
) -> tuple[str, ...]:
    several = task.gpus > 1  # torchrun starts the processes
    start = ["tools/launch.py", str(task.gpus), tool] if several else [f"tools/{tool}.py"]
    settings = [f"{key}={as_text(value)}" for key, value in options.items()]
    chosen = ["--cfg-options", *settings] if settings else []
    return (*start, config, *more, "--work-dir", folder, "--evidence", *(flags or []), *chosen)
