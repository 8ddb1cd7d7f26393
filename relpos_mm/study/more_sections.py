"""The parts of a report behind the verdicts: pictures, breakdown, cost, what is missing, how."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from . import figures
from .analysis import Analysis, Comparison, mean_and_spread
from .cell import Cell
from .images import ImageSpread, has_hotcoco, image_spread, typical
from .records import spoilt
from .samples import sample_figure
from .sections import NOTHING, Section, Table, means, number, place_of, scale, title_of
from .state import FINISHED, log_tail, state_of

_ENDS = 10  # classes at either end of a long table


def image_variance(analysis: Analysis) -> Section:
    """Seeds and pictures apart."""
    section = Section("Two sources of chance, apart")
    section.text.append(
        "Seeds: standard deviation of the difference over seeds. Pictures: median over seeds of "
        "the standard error of one seed's difference when the pictures are resampled (AP by "
        "hotcoco, mIoU from the pixel counts of each picture, top-1 from its label). Both are of "
        "one seed's difference, and pictures that the models get wrong by chance of training "
        "count in both, so they do not add up. Verdicts resample seeds alone."
    )
    if not has_hotcoco():
        section.text.append("AP over pictures needs hotcoco: pip install 'relpos-mm[report]'.")
    rows = []
    classes: dict[tuple[str, str], dict[str, list[ImageSpread]]] = {}
    for line in analysis.comparisons:
        spreads = list(_spreads(line))
        if not spreads:
            continue
        error, name = typical(spreads), title_of(line.metric)
        place = place_of(line.group)
        seeds = number(line.difference.spread, line.metric)
        rows.append([place, name, line.pair, seeds, number(error, line.metric), str(len(spreads))])
        classes.setdefault((place, line.metric), {})[line.pair] = spreads
    head = ["task", "metric", "difference", "over seeds", "over pictures", "seeds used"]
    section.tables.append(Table(head, rows))
    section.tables += [_by_class(*at, pairs) for at, pairs in classes.items()]
    if not rows:
        section.text.append("The results came without predictions, so nothing can be resampled.")
    return section


def _by_class(place: str, metric: str, pairs: Mapping[str, list[ImageSpread]]) -> Table:
    """Differences of each class; of many classes those that the first pair moves most."""
    first = next(iter(pairs.values()))
    means = {
        pair: {label: _mean_of_class(spreads, label) for label in spreads[0].per_class}
        for pair, spreads in pairs.items()
    }
    labels = list(first[0].per_class)
    caption = f"difference by class, points, mean over seeds: {title_of(metric)}, {place}"
    if len(labels) > 2 * _ENDS:
        leading = next(iter(means.values()))
        labels.sort(key=lambda label: leading[label] or 0.0)
        caption += f"; of {len(labels)} classes the {_ENDS} lowest and {_ENDS} highest"
        labels = labels[:_ENDS] + labels[-_ENDS:]
    rows = [
        [label, *(number(means[pair].get(label), metric, sign=True) for pair in pairs)]
        for label in labels
    ]
    return Table(["class", *pairs], rows, caption)


def _mean_of_class(spreads: list[ImageSpread], label: str) -> float | None:
    found = mean_and_spread([spread.per_class.get(label) for spread in spreads])
    return None if found is None else found[0]


def _spreads(line: Comparison) -> Iterator[ImageSpread]:
    records = line.group.records
    for seed in line.difference.seeds:
        one, other = records[line.variant][seed], records[line.control][seed]
        found = image_spread(one, other, line.metric)
        if found is not None:
            yield found


def breakdown(analysis: Analysis) -> Section:
    """All other metrics: sizes, factors, accuracies."""
    section = Section("Breakdown by size and factor")
    study = analysis.study
    for group in analysis.groups:
        known = dict.fromkeys(
            metric
            for seeds in group.records.values()
            for record in seeds.values()
            for metric in record.metrics
        )
        rows = []
        for metric in known:
            if scale(metric) != 1 or metric.endswith("_pct"):
                rows.append([title_of(metric), *means(study.variants, group, metric)])
        if rows:
            caption = f"{place_of(group)}: mean ± standard deviation (seeds)"
            section.tables.append(Table(["metric", *study.variants], rows, caption))
    return section


def cost(analysis: Analysis) -> Section:
    """What each variant costs, and the encoding's share of it."""
    section = Section("Cost")
    section.text.append(
        "Means over seeds. Cells ran side by side with others, so differences of time, and of "
        "memory on a CPU, are no cost of an encoding: docs/performance.md has those. Multiply-adds "
        "(MAC, what papers call FLOPs) are those of the backbone or encoder for one picture; sums, "
        "norms and softmax are not counted, by anybody."
    )
    names = {
        "wall_s": ("minutes", 1 / 60, ".1f"),
        "train_pictures_per_s": ("pictures/s in training", 1.0, ".1f"),
        "peak_memory_mib": ("peak memory, MiB", 1.0, ".0f"),
        "params": ("parameters", 1.0, ",.0f"),
        "params_position": ("of the encoding", 1.0, ",.0f"),
        "params_position_pct": ("encoding's share, %", 1.0, ".3f"),
        "gmac": ("GMAC", 1.0, ".3f"),
        "gmac_position_pct": ("encoding's share, %", 1.0, ".3f"),
    }
    rows = []
    for group in analysis.groups:
        for variant, records in group.records.items():
            costs = [record.cost for record in records.values() if record.cost]
            if not costs:
                continue
            cells = []
            for key, (_, factor, form) in names.items():
                found = mean_and_spread([each.get(key) for each in costs])
                cells.append(NOTHING if found is None else f"{factor * found[0]:{form}}")
            device = ", ".join(sorted({str(each.get("device", NOTHING)) for each in costs}))
            rows.append([place_of(group), variant, *cells, device])
    head = ["task", "variant", *(title for title, _, _ in names.values()), "device"]
    section.tables.append(Table(head, rows))
    return section


def curves(analysis: Analysis) -> Section:
    """Training loss of every variant."""
    section = Section("Learning curves")
    for group in analysis.groups:
        first = next((r for s in group.records.values() for r in s.values()), None)
        if first is not None and first.cost:  # a test on another split has no curve of its own
            svg = figures.curves(group)
            if svg is not None:
                section.figures.append((f"{place_of(group)}: loss, mean over seeds", svg))
    if not section.figures:
        section.text.append("The results came without curve.json, so there is nothing to draw.")
    return section


def samples(analysis: Analysis) -> Section | None:
    """The same pictures for every variant."""
    section = Section("The same pictures for every variant")
    for group in analysis.groups:
        found = sample_figure(group)
        if found is not None:
            section.figures.append((f"{place_of(group)}, {found[0]}", found[1]))
    return section if section.figures else None


def missing(analysis: Analysis, cells: list[Cell]) -> Section:
    """What failed, what is not there, and what was left out."""
    section = Section("Failed and missing cells")
    have = {
        (record.task, record.variant, record.seed, record.world)
        for group in analysis.groups
        for seeds in group.records.values()
        for record in seeds.values()
    }
    rows = []
    for cell in cells:
        if (cell.task, cell.variant, cell.seed, cell.world) in have:
            continue
        if problem := spoilt(cell):
            # What is done is not run again, so the way out has to be said.
            out = "restore it, or remove the cell's folder and run the study again"
            rows.append([cell.id, "spoilt result", "", f"{problem}; {out}"])
            continue
        state = state_of(cell)
        if state.word != FINISHED:
            tail = log_tail(cell.path, 3) if state.word == "failed" else ""
            rows.append([cell.id, state.word, state.step, tail])
    if rows:
        section.tables.append(Table(["cell", "state", "step", "end of its log"], rows))
    else:
        section.text.append("None.")
    section.text += [f"Note: {note}." for note in analysis.notes]
    return section


def reproduce(analysis: Analysis, versions: list[str], name: str) -> Section:
    """How to get the same numbers."""
    section = Section("Do it again")
    section.text.append(
        f"python tools/study.py run {name} trains and reports all of it; the same seed gives the "
        "same losses bit by bit on the CPU with the same code and libraries on the same kind of "
        "machine. Each result.json holds its resolved config and the hashes of config and data."
    )
    section.tables.append(Table(["versions that trained the cells"], [[v] for v in versions]))
    worlds = {name: knobs for name, knobs in analysis.study.worlds.items() if name}
    if worlds:
        recipes = [", ".join(f"{k} {v}" for k, v in knobs.items()) for knobs in worlds.values()]
        named = [list(row) for row in zip(worlds, recipes, strict=True)]
        section.tables.append(Table(["world", "knobs of its data"], named))
    rows = []
    for group in analysis.groups:
        conditions = json.loads(group.conditions)
        data = str(conditions[2] or NOTHING)[:12]
        told = [
            ", ".join(f"{k} {v}" for k, v in (each or {}).items() if v is not None)
            for each in conditions[:2]
        ]
        rows.append([place_of(group), *told, data, conditions[3]])
    section.tables.append(Table(["group", "protocol", "precision", "data", "recipe"], rows))
    return section
