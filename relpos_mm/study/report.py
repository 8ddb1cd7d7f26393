"""The report: Markdown, and one HTML page that needs nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape

from relpos_mm.engine.errors import UserError

from . import more_sections, sections
from .analysis import Analysis, Comparison, Group, analyse, mean_and_spread
from .cell import Cell
from .figures import numbered
from .probed import probes
from .records import collect
from .repeats import repeated
from .sections import Section
from .spec import Study
from .stats import HELPS, HURTS, UNDECIDED
from .worlds import knob

_FIGURE = re.compile(r"figure_\d{2,}\.svg")


def write_report(
    studies: Sequence[Study],
    results: Sequence[Path],
    out: Path,
    cells: Sequence[Cell] | None = None,
    bootstrap: bool = True,
) -> list[Path]:
    """Write ``report.md`` with its figures, ``report.html`` and ``summary.json`` into ``out``.

    Args:
        studies: What to report; each is a chapter, and nothing is compared across them.
        results: Result files, or folders of them, copied from elsewhere.
        out: Folder.
        cells: The planned cells of all studies; planned anew by default.
        bootstrap: Also resample pictures, which takes a while.

    Raises:
        UserError: ``results`` names a path that is not there or no result file, ``out`` is no
            folder, two different studies have one name, or there is no result at all.
    """
    studies = _named_once(studies)
    _check_paths(results, out)
    if cells is None:
        from .planning import plan  # imports the libraries

        cells = [cell for study in studies for cell in plan(study)]
    found = collect(studies, cells, results)
    if not found.records:
        raise UserError(_nothing(studies, results, found.notes))
    chapters = []
    for study in studies:
        planned = [cell for cell in cells if cell.study == study.name]
        analysis = analyse(study, found)
        parts = list(_parts(analysis, planned, found.versions, bootstrap))
        chapters.append({"study": study, "analysis": analysis, "parts": parts})
    environment = Environment(
        loader=PackageLoader("relpos_mm.study"),
        autoescape=select_autoescape(["html"]),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return list(_write(environment, chapters, out))


def _named_once(studies: Sequence[Study]) -> list[Study]:
    """Take a study that is given twice once; results are found by its name."""
    known: dict[str, Study] = {}
    for study in studies:
        if known.setdefault(study.name, study) != study:
            raise UserError(f"two different studies are called {study.name}; rename a file")
    return list(known.values())


def _check_paths(results: Sequence[Path], out: Path) -> None:
    for path in results:
        if not path.exists():
            raise UserError(f"--results: {path} does not exist")
        if path.is_file() and path.suffix != ".json":
            raise UserError(f"--results: {path} is no .json file; give result files or folders")
    there = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not there.is_dir():
        raise UserError(f"--out: {there} is a file, not a folder")


def _nothing(studies: Sequence[Study], results: Sequence[Path], notes: Sequence[str]) -> str:
    names = " ".join(study.name for study in studies)
    places = [*(study.folder for study in studies), *results]
    told = "".join(f"\n  {note}" for note in notes[:10])
    return (
        f"no result of {names} found in {', '.join(map(str, places))}. Train the cells with "
        "tools/study.py run, or give --results folders that hold their result.json files" + told
    )


def _parts(
    analysis: Analysis, cells: list[Cell], versions: list[str], bootstrap: bool
) -> Iterator[Section]:
    yield sections.summary(analysis)
    yield sections.rule(analysis)
    yield sections.results(analysis)
    yield from filter(None, [repeated(analysis)])
    yield from sections.differences(analysis)
    yield from filter(None, [sections.flips(analysis), knob(analysis)])
    if bootstrap:
        yield more_sections.image_variance(analysis)
    yield more_sections.breakdown(analysis)
    yield from filter(None, [more_sections.samples(analysis), probes(analysis.study.folder)])
    yield more_sections.curves(analysis)
    yield more_sections.cost(analysis)
    yield more_sections.missing(analysis, cells)
    yield more_sections.reproduce(analysis, versions, analysis.study.name)


def _write(environment: Environment, chapters: list[dict[str, Any]], out: Path) -> Iterator[Path]:
    out.mkdir(parents=True, exist_ok=True)
    drawn, older = 0, {path for path in out.iterdir() if _FIGURE.fullmatch(path.name)}
    for chapter in chapters:
        chapter["files"] = {}
        for part in chapter["parts"]:
            for at, (caption, svg) in enumerate(part.figures):
                drawn += 1
                svg = numbered(svg, drawn)
                part.figures[at] = (caption, svg)
                chapter["files"][svg] = f"figure_{drawn:02}.svg"
                (out / chapter["files"][svg]).write_text(_alone(svg))
                older.discard(out / chapter["files"][svg])
    for path in older:  # of a report with more figures
        path.unlink()
    brief = [_brief(chapter["analysis"], chapter["parts"]) for chapter in chapters]
    (out / "summary.json").write_text(json.dumps(brief, indent=2) + "\n")
    for name, template in (("report.md", "report.md.txt"), ("report.html", "report.html")):
        text = environment.get_template(template).render(chapters=chapters)
        (out / name).write_text(text)
        yield out / name


def _brief(analysis: Analysis, parts: Sequence[Section]) -> dict[str, Any]:
    """Return verdicts and results: as the README shows them, and as numbers for the ledger."""
    study = analysis.study
    short, results = (part for part in parts if part.title in ("In short", "Results"))
    text, tables = [*short.text, *results.text], [*short.tables, *results.tables[:1]]
    if len(study.worlds) > 1:  # tables of all worlds fill pages: the report has them
        text, tables = [*short.text, _counted(analysis)], []
    return {
        "study": study.name,
        "title": study.title,
        "level": study.level,
        "text": text,
        "tables": [vars(table) for table in tables],
        "means": list(_means(analysis)),
        "verdicts": [_verdict(line) for line in analysis.comparisons if line.difference.n],
    }


def _counted(analysis: Analysis) -> str:
    """How many comparisons of the main metrics ended in which verdict, in a sentence."""
    tasks = analysis.study.tasks
    verdicts = [
        line.difference.verdict
        for line in analysis.comparisons
        if line.difference.n
        and line.metric == tasks[line.group.task].metrics[0]
        and not tasks[line.group.task].shared  # it is in none of the worlds
    ]
    told = ", ".join(f"{verdicts.count(word)} {word}" for word in (HELPS, HURTS, UNDECIDED))
    return f"Main metrics, {len(analysis.study.worlds)} kinds of data: {told}; the report has each."


def _means(analysis: Analysis) -> Iterator[dict[str, Any]]:
    for group in (group for group in analysis.groups if not group.unknown):
        for metric in analysis.study.tasks[group.task].metrics:
            for variant in analysis.study.variants:
                found = mean_and_spread(list(group.values(variant, metric).values()))
                if found is not None:
                    told = dict(zip(("mean", "spread", "n"), found, strict=True))
                    yield {**_at(group), "metric": metric, "variant": variant, **told}


def _verdict(line: Comparison) -> dict[str, Any]:
    found = line.difference
    told = {key: getattr(found, key) for key in ("mean", "interval", "p", "p_holm", "n", "verdict")}
    pair = {"question": line.question, "variant": line.variant, "control": line.control}
    return {**_at(line.group), "metric": line.metric, **pair, **told}


def _at(group: Group) -> dict[str, str]:
    return {"task": group.task, "world": group.world, "protocol": group.protocol}


def _alone(svg: str) -> str:
    """Make a figure readable outside the page, on white, whatever the reader's colours."""
    style = "<style>svg{color:#222;background:#fff}</style>"
    head, rest = svg.split(">", 1)
    return f"{head}>{style}{rest}"
