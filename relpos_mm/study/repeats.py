"""Cells that were trained once more: how much of a seed's number a repetition keeps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from .analysis import Analysis, Comparison, Group
from .sections import NOTHING, Section, Table, number, place_of, title_of, told_verdict
from .twins import Repetition, told_repetitions


def repeated(analysis: Analysis) -> Section | None:
    """The section on repeated cells; None where there are none."""
    if not analysis.repetitions:
        return None
    text = [
        f"{told_repetitions(analysis.repetitions)} elsewhere, by the same recipe from the same "
        "seed: on another machine, or with code that adds in another order, rounding differs from "
        "the first step on. They count in no verdict above.",
        "The spread of a repetition is the standard deviation of one training around the mean of "
        "its cell; that of seeds is over the seeds of a variant, pooled over variants. Where both "
        "are alike, a seed fixes the order of the data and the start, but not what comes of them, "
        "and a difference at equal seed is no more certain than one between seeds.",
    ]
    spreads = [row for group in analysis.groups for row in _spread_rows(analysis, group)]
    head = ["metric", "cells", "mean change", "spread of a repetition", "spread of seeds"]
    tables = [Table(head, spreads, "the same cells twice")]
    if verdicts := list(_verdict_rows(analysis)):
        head = ["main metric", "difference", "first", "repeated"]
        caption = "both judged by the same rule, each on its own"
        tables.append(Table(head, verdicts, caption))
    return Section("The same cells once more", text, tables)


def _spread_rows(analysis: Analysis, group: Group) -> Iterator[list[str]]:
    at = (group.task, group.world, group.conditions)
    pairs = [
        each
        for each in analysis.repetitions
        if (each.first.task, each.first.world, each.first.conditions) == at
    ]
    for metric in analysis.study.tasks[group.task].metrics:
        changes = list(_changes(pairs, metric))
        if not changes:
            continue
        spread = float(np.std(changes, ddof=1)) / math.sqrt(2) if len(changes) > 1 else None
        yield [
            f"{title_of(metric)}, {place_of(group)}",
            str(len(changes)),
            number(float(np.mean(changes)), metric, sign=True),
            number(spread, metric),
            number(_spread_of_seeds(group, metric), metric),
        ]


def _changes(pairs: Sequence[Repetition], metric: str) -> Iterator[float]:
    for pair in pairs:
        first, again = pair.first.metrics.get(metric), pair.again.metrics.get(metric)
        if first is not None and again is not None:
            yield again - first


def _spread_of_seeds(group: Group, metric: str) -> float | None:
    """Standard deviation over the seeds of a variant, pooled over variants."""
    squares, freedom = 0.0, 0
    for variant in group.records:
        there = [value for value in group.values(variant, metric).values() if value is not None]
        if len(there) > 1:
            squares += float(np.var(there, ddof=1)) * (len(there) - 1)
            freedom += len(there) - 1
    return math.sqrt(squares / freedom) if freedom else None


def _verdict_rows(analysis: Analysis) -> Iterator[list[str]]:
    for again in analysis.repeated:
        main = analysis.study.tasks[again.group.task].metrics[0]
        if again.metric != main or not again.difference.n:
            continue
        first = _same(again, analysis.comparisons)
        yield [
            f"{title_of(main)}, {place_of(again.group)}",
            f"{again.question}: {again.pair}",
            told_verdict(first) if first else NOTHING,
            told_verdict(again),
        ]


def _same(line: Comparison, lines: Sequence[Comparison]) -> Comparison | None:
    def key(one: Comparison) -> tuple[str, ...]:
        group = one.group
        where = (group.task, group.world, group.conditions)
        return (*where, one.question, one.pair, one.metric)

    return next((one for one in lines if key(one) == key(line)), None)
