"""The parts of a report as plain data, the same for Markdown and HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import figures
from .analysis import Analysis, Comparison, FlipLine, Group, mean_and_spread
from .paper import PAPERS
from .stats import ALPHA, UNDECIDED, Difference, chance_of_verdict, fewest_seeds

NOTHING = "n/a"


@dataclass
class Table:
    """A table; ``rows`` hold text, in the order of ``head``."""

    head: list[str]
    rows: list[list[str]]
    caption: str = ""


@dataclass
class Section:
    """A part of the report: paragraphs, tables, and SVG figures with a caption."""

    title: str
    text: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: list[tuple[str, str]] = field(default_factory=list)


def scale(metric: str) -> float:
    """Return 100 for COCO's fractions, which papers print in per cent, else 1."""
    return 100.0 if metric.startswith(("box_ap", "mask_ap")) else 1.0


def number(value: float | None, metric: str = "", sign: bool = False) -> str:
    """Return a number as the report prints it; n/a where there is none, never 0."""
    if value is None:
        return NOTHING
    return f"{scale(metric) * value:{'+' if sign else ''}.2f}"


def title_of(metric: str) -> str:
    """Return a metric's name for people."""
    words = {"ap": "AP", "ap50": "AP50", "ap75": "AP75", "top1": "top-1", "pct": "%"}
    words |= {"miou": "mIoU", "aacc": "aAcc", "macc": "mAcc", "acc": "accuracy"}
    return " ".join(words.get(word, word) for word in metric.split("_"))


def place_of(group: Group) -> str:
    """Return task, world and protocol of a group."""
    world = f", {group.world}" if group.world else ""
    unknown = f"; {group.unknown} unknown" if group.unknown else ""
    return f"{group.task}{world} ({group.protocol}{unknown})"


def summary(analysis: Analysis) -> Section:
    """The verdicts, first."""
    section = Section("In short")
    if analysis.study.level == "mechanism":
        section.text.append(
            "Level: mechanism. These are small networks on composed pictures: they test how "
            "encodings work, and say nothing about the size of an effect on COCO or ADE20K."
        )
    section.text += [f"Written after the data: {remark}" for remark in analysis.study.remarks]
    section.text += _chance(analysis)
    lines = [line for line in analysis.comparisons if _main(analysis, line)]
    asked = list(dict.fromkeys((line.question, line.pair) for line in lines))
    rows: dict[int, dict[tuple[str, str], str]] = {}  # a name of a protocol may stand twice
    places: dict[int, str] = {}
    for line in lines:
        key = id(line.group)
        places[key] = f"{title_of(line.metric)}, {place_of(line.group)}"
        rows.setdefault(key, {})[line.question, line.pair] = told_verdict(line)
    head = [f"{question}: {pair}" for question, pair in asked]
    cells = [[places[key], *(row.get(at, NOTHING) for at in asked)] for key, row in rows.items()]
    caption = (
        "does the first of the two help or hurt? Verdict, mean difference in points of the metric, "
        "Student's 95 % interval, seeds. Undecided does not mean equal: every value in the "
        "interval remains possible"
    )
    section.tables.append(Table(["main metric", *head], cells, caption))
    section.text += _flip_lines([line for line in analysis.flips if _main(analysis, line.dense)])
    return section


def told_verdict(line: Comparison) -> str:
    """Return verdict, mean difference, interval and number of seeds."""
    found = line.difference
    if not found.n:
        return NOTHING
    facts = number(found.mean, line.metric, sign=True), interval_of(found, line.metric)
    told = ", ".join(fact for fact in facts if fact != NOTHING)
    return f"{found.verdict} ({told}, n = {found.n})"


def interval_of(found: Difference, metric: str) -> str:
    """Return the interval of a difference as the report prints it."""
    return " to ".join(number(end, metric, sign=True) for end in found.interval or (None,))


def _chance(analysis: Analysis) -> Iterator[str]:
    """How many verdicts chance alone would give."""
    judged = [line for line in analysis.comparisons if line.difference.n]
    sizes = {question.name: len(question.pairs) for question in analysis.study.questions}
    chances = [chance_of_verdict(line.difference.n, sizes[line.question]) for line in judged]
    decided = sum(line.difference.verdict != UNDECIDED for line in judged)
    if judged:
        yield (
            f"All metrics and tests together are {len(judged)} comparisons. Were there no effect "
            f"at all, up to {sum(chances):.1f} of them would be decided by chance; {decided} are."
        )


def _flip_lines(lines: Sequence[FlipLine]) -> Iterator[str]:
    decided = [line for line in lines if line.flip.statement != UNDECIDED]
    yield from map(flip_sentence, decided)
    if rest := len(lines) - len(decided):
        yield (
            f"The flip is undecided in {rest} of {len(lines)} combinations of question and dense "
            "test; the section on the flip lists them."
        )
    if lines and all(line.base.difference.verdict == UNDECIDED for line in lines):
        tasks = ", ".join(dict.fromkeys(line.base.group.task for line in lines))
        yield f"On {tasks} no question is decided, so no flip could be shown at all."


def _main(analysis: Analysis, line: Comparison) -> bool:
    return line.metric == analysis.study.tasks[line.group.task].metrics[0]


def flip_sentence(line: Any) -> str:
    """Say what may be said about one flip."""
    chance = line.flip.probability
    told = (
        "too few seeds to say how often the signs would differ"
        if chance is None
        else f"the signs of the mean differences differ in {chance:.0%} of resampled seeds"
    )
    return (
        f"{line.dense.question}, {line.base.group.task} against {place_of(line.dense.group)}, "
        f"{title_of(line.dense.metric)}: {line.flip.statement}; {told} (n = {line.flip.n})."
    )


def rule(analysis: Analysis) -> Section:
    """What was fixed before the data."""
    sizes = {question.name: len(question.pairs) for question in analysis.study.questions}
    needed = ", ".join(f"{name}: {size} ({fewest_seeds(size)})" for name, size in sizes.items())
    return Section(
        "The rule, stated before the data",
        [
            "The unit of evidence is the difference of two variants at the same seed: same order "
            "of data, same initial values of everything but the encoding. A model that starts from "
            "a classifier starts from its own one, so its difference includes the classifiers'. "
            "Tasks are never averaged and their points are never set against each other; only "
            "signs are.",
            "A difference helps or hurts when its exact two-sided permutation p value, corrected "
            f"by Holm within its question and metric, is at most {ALPHA:g} and Student's 95 % "
            "interval leaves out zero, too. Everything else is undecided, and one seed always is. "
            "Six seeds are the fewest with which an exact two-sided test can decide one comparison "
            "at 5 % (2 / 2^6 = 0.031; five give 0.0625). Up to 16 seeds all sign patterns are "
            "counted, of more seeds 65,536 are drawn.",
            "What a comparison could have shown is the smallest true difference that this rule "
            "calls with a probability of 80 %, were the differences of seeds normal with the "
            "spread found. It is rough, because the spread of six seeds is.",
            f"Comparisons per question, and the seeds that they need: {needed}. Questions are "
            "families of their own, and so are metrics and tests: the first section says how many "
            "verdicts chance alone would give. Verdicts take the test pictures as given.",
            "Numbers are compared only where protocol, precision, data and recipe are the same.",
        ],
    )


def results(analysis: Analysis) -> Section:
    """The table in the paper's form, the paper's numbers beside ours."""
    study = analysis.study
    section = Section("Results")
    columns: list[tuple[str, Any]] = []
    for group in analysis.groups:
        for metric in study.tasks[group.task].metrics:
            columns.append((f"{title_of(metric)}, {place_of(group)}", (group, metric)))
    rows = [[title, *means(study.variants, *at)] for title, at in columns]
    section.tables.append(
        Table(["measured here", *study.variants], rows, "mean ± standard deviation (seeds)")
    )
    if study.paper:
        section.tables.insert(0, _beside(analysis))
        section.text.append(
            "The table in the paper's form sets its numbers beside ours, each with its protocol. "
            "They were measured under other protocols and stand here to show the pattern that is "
            "asked about; they are not compared with ours."
        )
    return section


def _beside(analysis: Analysis) -> Table:
    """Variants by columns of the paper, our number and the published one of each."""
    study = analysis.study
    source, published = PAPERS[str(study.paper)]
    head, columns = ["encoding"], []
    for column in published:
        groups = [group for group in analysis.groups if group.task == column.task]
        if not groups:
            continue
        group = next((g for g in groups if column.prefer in g.protocol), groups[0])
        values = [column.values.get(variant) for variant in study.variants]
        printed = [NOTHING if value is None else f"{value:.1f}" for value in values]
        head += [f"{title_of(column.metric)}: ours", f"{column.title}: paper"]
        columns.append([*means(study.variants, group, column.metric), group.protocol])
        columns.append([*printed, column.protocol])
    names = [*study.variants, "protocol"]
    rows = [[name, *(column[at] for column in columns)] for at, name in enumerate(names)]
    return Table(head, rows if columns else [], f"paper: {source}")


def means(variants: Sequence[str], group: Group, metric: str) -> list[str]:
    """Return mean ± standard deviation (seeds) of every variant."""
    cells = []
    for variant in variants:
        found = mean_and_spread(list(group.values(variant, metric).values()))
        if found is None:
            cells.append(NOTHING)
            continue
        mean, spread, n = found
        about = "" if spread is None else f" ± {number(spread, metric)}"
        cells.append(f"{number(mean, metric)}{about} ({n})")
    return cells


def differences(analysis: Analysis) -> Iterator[Section]:
    """One section per group: a table and a figure per metric."""
    for group in analysis.groups:
        lines = [line for line in analysis.comparisons if line.group is group]
        if not lines:
            continue
        section = Section(f"Differences: {place_of(group)}")
        metrics = analysis.study.tasks[group.task].metrics
        lines.sort(key=lambda line: metrics.index(line.metric))
        families = any(len(question.pairs) > 1 for question in analysis.study.questions)
        rows = [_difference_row(line, families) for line in lines]
        head = ["metric", "difference", "verdict", "mean", "95 % interval", "seeds", "p"]
        head += ["p, Holm"] if families else []
        caption = "variant minus control, in points"
        section.tables.append(Table([*head, "could have shown"], rows, caption))
        for metric in dict.fromkeys(line.metric for line in lines):
            there = [line for line in lines if line.metric == metric and line.difference.n]
            if there:
                svg = figures.differences(there, title_of(metric), scale(metric))
                caption = f"{title_of(metric)}: mean, 95 % interval, a tick per seed"
                section.figures.append((f"{caption}; green helps, red hurts", svg))
        yield section


def _difference_row(line: Comparison, families: bool) -> list[str]:
    found, metric = line.difference, line.metric
    chances = [found.p, *([found.p_holm] if families else [])]
    return [
        title_of(metric),
        line.pair,
        found.verdict if found.n else UNDECIDED,
        number(found.mean, metric, sign=True),
        interval_of(found, metric),
        str(found.n),
        *(NOTHING if p is None else f"{p:.3f}" for p in chances),
        number(found.detectable, metric) if found.detectable is not None else "nothing",
    ]


def flips(analysis: Analysis) -> Section | None:
    """The flip, for every dense metric."""
    if not analysis.flips:
        return None
    rows = [
        [
            f"{line.dense.question}: {line.dense.pair}",
            f"{title_of(line.dense.metric)}, {place_of(line.dense.group)}",
            line.flip.statement,
            NOTHING if line.flip.probability is None else f"{line.flip.probability:.3f}",
            number(line.base.difference.mean, line.base.metric, sign=True),
            number(line.dense.difference.mean, line.dense.metric, sign=True),
            str(line.flip.n),
        ]
        for line in analysis.flips
    ]
    head = ["difference", "dense metric", "statement", "P(signs differ)"]
    head += ["mean difference, classification", "mean difference, dense"]
    return Section(
        "The flip itself",
        [
            "P is the share of resampled seeds (the same for both tasks) in which the two mean "
            "differences have opposite signs. It is no p value: near one half the seeds say "
            "nothing, and near 0 or 1 it is too sure, because few seeds resampled spread too "
            "little and pictures are not resampled. A flip counts as shown only when both verdicts "
            "are decided and opposite. Mean differences are in points of the metric."
        ],
        [Table([*head, "seeds"], rows)],
    )
