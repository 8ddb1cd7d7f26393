"""One curve of a run over all its restarts."""

from __future__ import annotations

import json
from collections.abc import Iterable
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
        rows = merge(row for path in starts for row in read_rows(path))
        content = "".join(f"{json.dumps(row)}\n" for row in rows)
        write_atomically(Path(runner.work_dir) / self.filename, content.encode())


def merge(rows: Iterable[Row]) -> list[Row]:
    """Drop what was done again after a restart; steps of training and of validation rise strictly.

    A step of training that comes a second time says that a killed run had logged behind the
    checkpoint from which the next start went on: everything from its first time on is void.

    Args:
        rows: Rows of all starts in order of time. Rows of training have a ``loss``; those of a
            validation may count epochs where the others count iterations.
    """
    merged: list[Row] = []
    last: dict[bool, int] = {}
    for row in rows:
        training = "loss" in row
        if row["step"] <= last.get(training, -1):
            again = [
                at
                for at, old in enumerate(merged)
                if ("loss" in old) == training and old["step"] >= row["step"]
            ]
            if again and training:
                del merged[again[0] :]
            elif again:
                merged = [old for at, old in enumerate(merged) if at not in again]
        last[training] = row["step"]
        merged.append(row)
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
