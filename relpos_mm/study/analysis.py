"""From records to tables: means per cell, differences per question, the flip.

Only numbers of the same task, world, protocol, precision, data and recipe are ever set against each
other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .records import Collection, Record
from .spec import Study
from .stats import Difference, Flip, flip, holm, paired
from .twins import Repetition, told_repetitions


@dataclass(frozen=True)
class Group:
    """Records that may be compared with each other.

    Attributes:
        task: Name of the task.
        world: World of the data.
        protocol: Name of the protocol.
        conditions: See :class:`relpos_mm.study.records.Record`.
        records: By variant, then by seed.
        unknown: What the files do not say of their conditions; such groups are shown only.
    """

    task: str
    world: str
    protocol: str
    conditions: str
    records: dict[str, dict[int, Record]]
    unknown: str = ""

    def values(self, variant: str, metric: str) -> dict[int, float | None]:
        """Return a metric of a variant by seed."""
        found = self.records.get(variant, {})
        return {seed: record.metrics.get(metric) for seed, record in found.items()}


@dataclass(frozen=True)
class Comparison:
    """One line of the differences: a question's pair on one metric of one group."""

    question: str
    variant: str
    control: str
    group: Group
    metric: str
    difference: Difference

    @property
    def pair(self) -> str:
        """``variant - control``."""
        return f"{self.variant} - {self.control}"


@dataclass(frozen=True)
class FlipLine:
    """The sign of one pair on a dense task against its sign on the task it started from."""

    base: Comparison
    dense: Comparison
    flip: Flip


@dataclass
class Analysis:
    """Everything that the report says in numbers.

    Attributes:
        study: The study.
        groups: Records that may be compared.
        comparisons: The study's questions on them.
        flips: Signs on dense tasks against those on classification.
        notes: What a reader has to know of the files.
        repetitions: Cells of the study that were trained once more.
        repeated: The study's questions on the repetitions alone.
    """

    study: Study
    groups: list[Group] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    flips: list[FlipLine] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    repetitions: list[Repetition] = field(default_factory=list)
    repeated: list[Comparison] = field(default_factory=list)


def analyse(study: Study, collection: Collection) -> Analysis:
    """Compare what the study asks for."""
    result = Analysis(study, _groups(study, collection.records), notes=list(collection.notes))
    known = [group for group in result.groups if not group.unknown]
    result.comparisons = list(_comparisons(study, known))
    result.repetitions = [r for r in collection.repetitions if r.first.study == study.name]
    again = _groups(study, [each.again for each in result.repetitions])
    result.repeated = list(_comparisons(study, [group for group in again if not group.unknown]))
    result.flips = list(_flips(study, result.comparisons))
    if result.repetitions:
        told = told_repetitions(result.repetitions)
        result.notes.append(f"{told} and count in no verdict; see the section on repeated cells")
    result.notes += _unbalanced(study, known)
    result.notes += _without_number(study, result.groups)
    result.notes += _other_seeds(study, result.groups)
    result.notes += _apart(known)
    result.notes += [
        f"{group.task} {group.world}".strip() + f", {group.protocol}: results of "
        f"{', '.join(group.records)} do not say their {group.unknown}; they are shown, and "
        "compared with nothing"
        for group in result.groups
        if group.unknown
    ]
    return result


def _comparisons(study: Study, groups: Sequence[Group]) -> Iterator[Comparison]:
    for group in groups:
        for question in study.questions:
            for metric in _metrics(study, group):
                yield from _compare(question, group, metric)


def _groups(study: Study, records: Sequence[Record]) -> list[Group]:
    groups: dict[tuple[str, str, str], Group] = {}
    for record in records:
        known = record.task in study.tasks and record.variant in study.variants
        if not known or record.study not in ("", study.name):
            continue
        key = (record.task, record.world, record.conditions)
        about = (record.task, record.world, record.protocol, record.conditions)
        group = groups.setdefault(key, Group(*about, {}, record.unknown))
        group.records.setdefault(record.variant, {})[record.seed] = record
    order = list(study.tasks)

    def apart(group: Group) -> tuple[bool, int]:
        # Groups of unknown conditions hold one variant each; they stand last, as the study's do.
        first = min(map(study.variants.index, group.records))
        return bool(group.unknown), first if group.unknown else 0

    return sorted(groups.values(), key=lambda g: (order.index(g.task), g.world, *apart(g)))


def _metrics(study: Study, group: Group) -> list[str]:
    known = {m for seeds in group.records.values() for r in seeds.values() for m in r.metrics}
    return [metric for metric in study.tasks[group.task].metrics if metric in known]


def _compare(question: object, group: Group, metric: str) -> list[Comparison]:
    pairs = question.pairs  # type: ignore[attr-defined]
    lines = [
        Comparison(
            question.name,  # type: ignore[attr-defined]
            one,
            other,
            group,
            metric,
            paired(group.values(one, metric), group.values(other, metric), len(pairs)),
        )
        for one, other in pairs
    ]
    # A comparison without a number still counts in the family: it was asked.
    adjusted = holm([1.0 if c.difference.p is None else c.difference.p for c in lines])
    return [
        replace(c, difference=replace(c.difference, p_holm=p)) if c.difference.n else c
        for c, p in zip(lines, adjusted, strict=True)
    ]


def _flips(study: Study, comparisons: Sequence[Comparison]) -> Iterator[FlipLine]:
    for dense in comparisons:
        start = study.tasks[dense.group.task].start
        if start is None or dense.difference.n == 0:
            continue
        shared = study.tasks[start].shared
        metric = study.tasks[start].metrics[0]
        for base in comparisons:
            same = (base.question, base.pair) == (dense.question, dense.pair)
            at_start = base.group.task == start and base.metric == metric
            if same and at_start and (shared or base.group.world == dense.group.world):
                yield FlipLine(base, dense, flip(base.difference, dense.difference))


def _unbalanced(study: Study, groups: Sequence[Group]) -> list[str]:
    notes = []
    for group in groups:
        counts = {variant: len(group.records.get(variant, {})) for variant in study.variants}
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{variant} {count}" for variant, count in counts.items())
            where = f"{group.task} {group.world}".strip()
            notes.append(
                f"unbalanced seeds in {where}, {group.protocol}: {told}. Differences use the seeds "
                "that both variants have"
            )
    return notes


def _without_number(study: Study, groups: Sequence[Group]) -> Iterator[str]:
    for group in groups:
        metric = study.tasks[group.task].metrics[0]
        for variant in group.records:
            values = group.values(variant, metric)
            if absent := sorted(seed for seed, value in values.items() if value is None):
                where = f"{group.task} {group.world}".strip()
                yield f"no {metric} in {where}, {group.protocol}: {variant}, seeds {absent}"


def _other_seeds(study: Study, groups: Sequence[Group]) -> Iterator[str]:
    for group in groups:
        seeds = {seed for records in group.records.values() for seed in records}
        if others := sorted(seeds.difference(study.seeds)):
            use = "are shown" if group.unknown else "count in its verdicts"
            where = f"{group.task} {group.world}".strip()
            yield f"{where}, {group.protocol}: seeds {others} are not of the study, and {use}"


def _apart(groups: Sequence[Group]) -> list[str]:
    names: dict[tuple[str, str, str], int] = {}
    for group in groups:
        key = (group.task, group.world, group.protocol)
        names[key] = names.get(key, 0) + 1
    return [
        f"{task} {world}: {count} sets of results share the protocol name {protocol} but differ in "
        "protocol, precision, data or recipe; they are not compared with each other"
        for (task, world, protocol), count in names.items()
        if count > 1
    ]


def mean_and_spread(values: Sequence[float | None]) -> tuple[float, float | None, int] | None:
    """Return mean, standard deviation (None below two) and number of the values that are there."""
    there = [value for value in values if value is not None]
    if not there:
        return None
    spread = float(np.std(there, ddof=1)) if len(there) > 1 else None
    return float(np.mean(there)), spread, len(there)
