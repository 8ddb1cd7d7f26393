"""What a study of several kinds of data says beside each kind's own differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from . import figures
from .analysis import Analysis, Comparison
from .sections import NOTHING, Section, Table, interval_of, number, title_of
from .stats import fewest_seeds, paired


def knob(analysis: Analysis) -> Section | None:
    """Differences against layout strength, and between worlds, where the study has such worlds."""
    section = Section(
        "Against layout strength",
        [
            "Bars are the 95 % intervals of each world by itself. Tasks that worlds share, such as "
            "the classifiers that all start from, were trained once."
        ],
    )
    for metric in dict.fromkeys(line.metric for line in analysis.comparisons):
        for protocol in dict.fromkeys(group.protocol for group in analysis.groups):
            lines = [
                line
                for line in analysis.comparisons
                if line.metric == metric and line.group.protocol == protocol
            ]
            svg = figures.knob(lines, analysis.study.worlds, title_of(metric))
            if svg is not None:
                section.figures.append((f"{title_of(metric)}, {protocol}", svg))
    if not section.figures:
        return None
    section.tables.append(_between(analysis))
    return section


def _between(analysis: Analysis) -> Table:
    """The differences of every world against those of the first one."""
    study = analysis.study
    first, *others = study.worlds
    rows = [row for world in others for row in _against(analysis, first, world)]
    head = ["main metric", "difference", "world", "mean", "95 % interval", "seeds", "p"]
    count = len(others)
    caption = (
        f"the difference of two variants in a world minus the same difference in {first}, at equal "
        "seed, in points: does the kind of data change what an encoding is worth? No verdict: a "
        f"family of {count} would need {fewest_seeds(count)} seeds"
    )
    return Table(head, rows, caption)


def _against(analysis: Analysis, first: str, world: str) -> Iterator[list[str]]:
    tasks = analysis.study.tasks
    for line in analysis.comparisons:
        if line.group.world != world or line.metric != tasks[line.group.task].metrics[0]:
            continue
        base = _in_world(line, first, analysis.comparisons)
        if base is None:
            continue
        found = paired(_by_seed(line), _by_seed(base))
        if not found.n:
            continue
        yield [
            f"{title_of(line.metric)}, {line.group.task} ({line.group.protocol})",
            line.pair,
            world,
            number(found.mean, line.metric, sign=True),
            interval_of(found, line.metric),
            str(found.n),
            NOTHING if found.p is None else f"{found.p:.3f}",
        ]


def _in_world(line: Comparison, world: str, lines: Sequence[Comparison]) -> Comparison | None:
    def key(one: Comparison) -> tuple[str, ...]:
        return (one.group.task, one.group.protocol, one.question, one.pair, one.metric)

    return next((o for o in lines if o.group.world == world and key(o) == key(line)), None)


def _by_seed(line: Comparison) -> dict[int, float | None]:
    return dict(zip(line.difference.seeds, line.difference.values, strict=True))
