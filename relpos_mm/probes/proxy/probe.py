"""The proxy tasks as a probe of ``tools/probe.py``; it trains its networks itself."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, ClassVar, NoReturn

import torch

from relpos_mm.engine.errors import UserError
from relpos_mm.probes.probe import PROBES, Probe
from relpos_mm.probes.record import Findings, Record
from relpos_mm.probes.subject import Subject

from .page import write_page
from .run import DEFAULT, ENCODINGS, SEEDS, accuracy, known, scale_scores, train
from .tasks import TASKS


@PROBES.register_module("proxy")
class Proxy(Probe):
    """Train tiny networks on tasks that isolate one property of position each."""

    about: ClassVar[str] = "tiny tasks that show what an encoding can represent; takes no model"
    needs_model: ClassVar[bool] = False
    unmeasured: ClassVar[tuple[str, ...]] = ("encodings", "doc")  # a record is of one encoding

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--encodings", nargs="+", default=list(DEFAULT), metavar="NAME")
        parser.add_argument("--tasks", nargs="+", default=list(TASKS), metavar="TASK")
        parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS), metavar="N")
        parser.add_argument(
            "--doc", type=Path, metavar="FOLDER", help="write proxy_tasks.json and .md there"
        )

    def measure(self, subject: Subject, settings: dict[str, Any]) -> NoReturn:
        raise UserError("proxy: trains its own networks; give neither config nor checkpoint")

    def records(
        self, models: object, settings: dict[str, Any], *_: Any, **__: Any
    ) -> Iterator[Record]:
        """One record per encoding, all its tasks and seeds inside; everything runs on the CPU."""
        encodings = known(settings["encodings"], ENCODINGS, "encoding")
        tasks = known(settings["tasks"], TASKS, "task")
        seeds, doc = settings["seeds"], settings["doc"]
        if doc and set(tasks) != set(TASKS):
            raise UserError("--doc: the page needs all tasks; leave --tasks out")
        shown = {**settings, "doc": str(doc) if doc else None}
        details = {}
        for name in encodings:
            details[name] = measured(name, tasks, seeds)
            yield Record("proxy", shown, name, _findings(details[name], len(seeds)))
        if doc:
            write_page({"seeds": seeds, "torch": torch.__version__, "encodings": details}, doc)
            print(f"written: {doc / 'proxy_tasks.md'}", flush=True)


def measured(name: str, tasks: Sequence[str], seeds: Sequence[int]) -> dict[str, Any]:
    """Train one encoding on some tasks with some seeds.

    Returns:
        ``scores`` by task and, where ``relative_copy`` is among them, ``scales`` by their names:
        one number per seed.
    """
    scores: dict[str, list[float]] = {task: [] for task in tasks}
    scales: dict[str, list[float]] = {}
    for seed in seeds:
        for task in tasks:
            model = train(task, ENCODINGS[name], seed)
            scores[task].append(accuracy(model, TASKS[task].test, seed))
            if task == "relative_copy":
                for scale, score in scale_scores(model, ENCODINGS[name], seed).items():
                    scales.setdefault(scale, []).append(score)
    return {"scores": scores, "scales": scales}


def _findings(details: dict[str, Any], seeds: int) -> Findings:
    found = Findings(details=details, notes=[f"mean over n = {seeds} seeds"])
    for name, scores in {**details["scores"], **details["scales"]}.items():
        found.numbers[name] = mean(scores)
        if len(scores) > 1:
            found.numbers[f"{name}, standard deviation"] = stdev(scores)
    return found
