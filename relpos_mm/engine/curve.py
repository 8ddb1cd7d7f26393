"""One curve of a run over all its restarts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mmengine.dist import master_only
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner

from .saving import write_atomically

Row = dict[str, Any]


@HOOKS.register_module()
class CurveHook(Hook):
    """Write ``curve.json`` into the run directory whenever a checkpoint is saved, and at the end.

    It has one JSON object a line, as mmengine's ``TIME/vis_data/scalars.json``, which starts anew
    at every start of a run.
    """

    priority = "LOWEST"
    filename = "curve.json"

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        self._write(runner)

    def after_train(self, runner: Runner) -> None:
        self._write(runner)

    @master_only
    def _write(self, runner: Runner) -> None:
        starts = sorted(Path(runner.work_dir).glob("*/vis_data/scalars.json"))
        rows = merge([read_rows(path) for path in starts])
        content = "".join(f"{json.dumps(row)}\n" for row in rows)
        write_atomically(Path(runner.work_dir) / self.filename, content.encode())


def merge(starts: list[list[Row]]) -> list[Row]:
    """Join the rows of all starts of a run; the steps of each kind of row rise strictly.

    What a killed run logged behind the checkpoint that the next start went on from, was done
    again by that start and is left out. A start from the beginning leaves out all before it.

    Args:
        starts: Rows of every start, in order of time. Rows of training have a ``loss``; those of
            a validation may count epochs where the others count iterations.
    """
    merged: list[Row] = []
    for rows in starts:
        first: dict[bool, int] = {}
        for row in rows:
            first.setdefault("loss" in row, row["step"])
        merged = [row for row in merged if row["step"] < first.get("loss" in row, row["step"] + 1)]
        merged += rows
    return merged


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a log; a line that a killed run left unfinished is left out."""
    rows = []
    for line in path.read_text().splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if "step" in row:
            rows.append(row)
    return rows
