"""Measured numbers of README and docs, kept as records of runs and rendered from them alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from relpos_mm.engine.errors import UserError

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
# The page that shows a demo's record; studies stand in the README.
PAGES: Mapping[str, Sequence[str]] = {
    "README.md": ("detection", "segmentation"),
    "docs/detr.md": ("detr",),
}
# What a reader needs to judge a number or to measure it again.
_KEPT = (
    "task",
    "variant",
    "seed",
    "metrics",
    "protocol",
    "cost",
    "config",
    "config_sha256",
    "data_sha256",
    "versions",
)
_GUIDE = (
    "Studies follow. They train other schedules than the demos above, and no number of one is "
    "compared with one of another; [how to read them](docs/study.md#the-rule)."
)
_SHOWN = {
    "top1_pct": "top-1 {:.1f} %",
    "box_ap": "box AP {:.3f}",
    "mask_ap": "mask AP {:.3f}",
    "miou_pct": "mIoU {:.1f} %",
    "things_miou_pct": "letters' mIoU {:.1f} %",
}


def read_result(run_dir: str | Path) -> dict[str, Any]:
    """Return the ``result.json`` of a run.

    Raises:
        UserError: The run did not end with a result.
    """
    path = Path(run_dir) / "result.json"
    if not path.is_file():
        raise UserError(f"{path} is missing: the run did not reach its evaluation")
    return json.loads(path.read_text())


def record_demo(runs: Mapping[str, Path], task: str, out_dir: str | Path) -> Path:
    """Keep what the demo's runs found as ``OUT_DIR/TASK.json``, without paths of this machine."""
    record = {}
    for name, run_dir in runs.items():
        result = read_result(run_dir)
        record[name] = {key: result[key] for key in _KEPT}
    path = Path(out_dir) / f"{task}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2) + "\n")
    return path


def render_results(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a table of the demos' results: ``{task: {run: result}}`` as Markdown."""
    lines = [
        "Generated from `docs/results/` by `python tools/update_readme.py`. These numbers say that",
        "the machinery works on the embedded pictures; they say nothing about COCO.",
        "",
        "| demo | run | encoding | result | protocol | seed | minutes |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for task, runs in records.items():
        for name, run in runs.items():
            shown = [
                text.format(run["metrics"][metric])
                for metric, text in _SHOWN.items()
                if run["metrics"].get(metric) is not None
            ]
            cells = (
                task,
                name.replace("_", " "),
                run["variant"],
                ", ".join(shown),
                run["protocol"]["name"],
                run["seed"],
                f"{run['cost']['wall_s'] / 60:.1f}",
            )
            lines.append(f"| {' | '.join(map(str, cells))} |")
    made = [run for runs in records.values() for run in runs.values()]
    lines += ["", f"Data {_all(made, lambda run: run['data_sha256'][:12])}; "]
    lines[-1] += f"{_all(made, lambda run: run['cost']['device'])}; {_all(made, _versions)}."
    return "\n".join(lines)


def _all(runs: list[Mapping[str, Any]], fact: Callable[[Mapping[str, Any]], str]) -> str:
    """What runs say of a fact, each answer once."""
    return " or ".join(dict.fromkeys(map(fact, runs)))


def _versions(run: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in run["versions"].items())


def render_study(brief: Mapping[str, Any]) -> str:
    """Return a study's verdicts and results, from its report's ``summary.json``, as Markdown."""
    title = f"[{brief['title']}]({brief['report']})" if "report" in brief else brief["title"]
    lines = [f"**{title}**", ""]
    for text in brief["text"]:
        lines += [text, ""]
    for table in brief["tables"]:
        lines += [_row(table["head"]), _row(["---"] * len(table["head"]))]
        lines += [*map(_row, table["rows"]), ""]
        if table["caption"]:
            lines += [f"{table['caption']}.", ""]
    return "\n".join(lines).rstrip()


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def load_studies(folder: str | Path) -> list[dict[str, Any]]:
    """Return the studies whose reports are kept as ``FOLDER/NAME/summary.json``.

    ``report`` is the path of a study's report from the README.
    """
    files = sorted(Path(folder).glob("*/summary.json"))
    return [
        {**brief, "report": f"docs/studies/{file.parent.name}/report.md"}
        for file in files
        for brief in json.loads(file.read_text())
    ]


def update_results(
    page: str,
    text: str,
    records: Mapping[str, Mapping[str, Any]],
    studies: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return the text of a page with the block between its markers rendered anew.

    Args:
        page: Key of :data:`PAGES`, which says what the page shows of ``records``.
        text: What the page says now.
        records: ``{task: {run: result}}``.
        studies: Summaries to show below the table.

    Raises:
        UserError: There is no record for this page, or the markers are missing.
    """
    shown = {task: records[task] for task in PAGES[page] if task in records}
    if not shown:
        command = f"python tools/demo.py --task {PAGES[page][0]} --record docs/results"
        raise UserError(f"{page}: there is no record; make one: {command}")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UserError(f"{page}: the markers {BEGIN} and {END} are missing; put them back")
    guide = [_GUIDE] if studies else []
    blocks = "\n\n".join([render_results(shown), *guide, *map(render_study, studies)])
    return f"{before}{begin}\n{blocks}\n{end}{after}"


def load_records(folder: str | Path) -> dict[str, dict[str, Any]]:
    """Return ``{task: {run: result}}`` of all records in a folder, by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))}
