"""Cells that were trained once more: how much of a seed's number a repetition keeps."""

from __future__ import annotations

import math
from collections import Counter
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
        "seed. What may differ is the machine, the libraries and the code (below); where they add "
        "in another order, rounding differs from the first step on. Dense cells start from the "
        "classifiers of their own run. None of it counts in a verdict above.",
        "The spread of a repetition is the standard deviation of one training around the mean of "
        "its cell; that of seeds is over the seeds of a variant, pooled over the variants with "
        "repeated cells. Where both are alike, a seed fixes the order of the data and the numbers "
        "that are drawn, but not what comes of them, and a difference at equal seed is no more "
        "certain than one between seeds.",
    ]
    tables = [_cells(analysis)]
    if spreads := [row for group in analysis.groups for row in _spread_rows(analysis, group)]:
        head = ["metric", "cells", "repeated - first, mean", "spread of a repetition"]
        tables.append(Table([*head, "spread of seeds"], spreads, "the same cells twice"))
    if verdicts := list(_verdict_rows(analysis)):
        head = ["main metric", "difference", "first", "repeated"]
        caption = "both judged by the same rule, each on its own"
        tables.append(Table(head, verdicts, caption))
    codes = Counter(each.versions or NOTHING for each in _one_a_cell(analysis.repetitions))
    rows = [[which, str(count)] for which, count in codes.items()]
    tables.append(Table(["versions that trained the repetitions", "cells"], rows))
    return Section("The same cells once more", text, tables)


def _one_a_cell(repetitions: Sequence[Repetition]) -> list[Repetition]:
    return list({each.first.path: each for each in repetitions}.values())


def _cells(analysis: Analysis) -> Table:
    """Which seeds of which variants were repeated."""
    seeds: dict[tuple[str, str], list[int]] = {}
    for each in _one_a_cell(analysis.repetitions):
        place = f"{each.first.task} {each.first.world}".strip()
        seeds.setdefault((place, each.first.variant), []).append(each.first.seed)
    variants = analysis.study.variants
    rows = [
        [
            place,
            *(", ".join(map(str, sorted(seeds.get((place, v), [])))) or "none" for v in variants),
        ]
        for place in dict.fromkeys(place for place, _ in seeds)
    ]
    return Table(["repeated seeds", *variants], rows)


def _spread_rows(analysis: Analysis, group: Group) -> Iterator[list[str]]:
    at = (group.task, group.world, group.conditions)
    pairs = [
        each
        for each in analysis.repetitions
        if (each.first.task, each.first.world, each.first.conditions) == at and not group.unknown
    ]
    variants = {each.first.variant for each in pairs}
    for metric in analysis.study.tasks[group.task].metrics:
        changes = list(_changes(pairs, metric))
        if not changes:
            continue
        spread = float(np.std(changes, ddof=1)) / math.sqrt(2) if len(changes) > 1 else None
        yield [
            f"{title_of(metric)}, {place_of(group)}",
            str(len(changes)),
            number(round(float(np.mean(changes)), 9) + 0.0, metric, sign=True),  # no -0.00
            number(spread, metric),
            number(_spread_of_seeds(group, metric, variants), metric),
        ]


def _changes(pairs: Sequence[Repetition], metric: str) -> Iterator[float]:
    for pair in pairs:
        first, again = pair.first.metrics.get(metric), pair.again.metrics.get(metric)
        if first is not None and again is not None:
            yield again - first


def _spread_of_seeds(group: Group, metric: str, variants: set[str]) -> float | None:
    """Standard deviation over the seeds of a variant, pooled over variants."""
    squares, freedom = 0.0, 0
    for variant in variants:
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
