"""The ledger of published numbers: ``docs/claims.yaml`` as a page, with what our studies say.

Nothing about our own results is written down: a status comes from the ``summary.json`` of the
reports that are kept under ``docs/studies/``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from scipy import stats

from relpos_mm.engine.errors import UserError

NOT_RUN = "not run by us"
NOTHING = "n/a"
_UNSTATED = "protocol not stated, so not judged"
_FEWEST_RUNS = 3
_READ = {
    "paper": "",
    "release": "released code",
    "digest": "read in a third party's digest",
}
_KEYS = {"method", "task", "source", "where", "read", "model", "recipe", "protocol", "metrics"}
_MORE = {"rows", "pairs", "unstated", "change", "pages", "ours"}
_HEAD = """# Published numbers on position encodings

<!-- made from claims.yaml by tools/update_claims.py; edit that file -->

What papers and releases report, by task and method: one table per source and protocol, as printed.
Numbers of two tables are never to be compared: recipe, detector or protocol differ. Single runs
where a table does not say otherwise.

*Status* compares a number with the study that repeats it, recipe and protocol alike, once its
report is kept with these documents: **reproduced** where the published number lies within the 95 %
prediction interval for one more run of ours ({fewest} runs at least), **contradicted** where it
does not, else **{not_run}**. Studies on embedded pictures decide no status.
"""
_SIGNS = """## Signs

The question that this project asks, in all tables above that answer it: what the absolute term
adds. Ours is the verdict of a kept report for the same two encodings and the same kind of task; a
*mechanism* study has other networks and other pictures, so its sign is all that may be set beside a
published one. A study that varies its pictures on purpose answers another question and is left out.
"""


def read_claims(path: Path) -> dict[str, Any]:
    """Read the data file.

    Raises:
        UserError: An entry lacks a key or a number, or names something that is not there; the
            message names the entry.
    """
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    for number, claim in enumerate(content["claims"], 1):
        for problem in _problems(claim, content["sources"]):
            name = f"entry {number} ({claim.get('source')}, {claim.get('where')})"
            raise UserError(f"{path.name}: {name}: {problem}")
    return content


def _problems(claim: Mapping[str, Any], sources: Mapping[str, Any]) -> Iterator[str]:
    if missing := sorted(_KEYS - {key for key, value in claim.items() if value}):
        yield f"has no {', '.join(missing)}"
        return
    if unknown := sorted(claim.keys() - _KEYS - _MORE):
        yield f"has unknown keys: {', '.join(unknown)}"
    if claim["source"] not in sources:
        yield f"its source {claim['source']!r} is not listed under sources"
    if claim["read"] not in _READ:
        yield f"read is {claim['read']!r}, not one of {', '.join(_READ)}"
    if not all(claim["metrics"].values()):
        yield "a metric has no unit"
    rows = claim.get("rows") or {}
    if not rows:
        yield "has no rows"
    for name, values in rows.items():
        numbers = [value for value in values if value is not None]
        if len(values) != len(claim["metrics"]) or not numbers:
            yield f"row {name!r} has not one number, or null, per metric"
        if any(type(value) not in (int, float) for value in numbers):
            yield f"row {name!r} holds something that is no number"
    named = [name for pair in claim.get("pairs", ()) for name in pair]
    named += claim.get("unstated", ())
    named += (claim.get("ours") or {}).get("variants", ())
    if strange := [name for name in named if name not in rows]:
        yield f"pairs, unstated or ours name rows that are not there: {', '.join(strange)}"


def load_summaries(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the kept reports' numbers by name of the study; those of several worlds left out."""
    files = sorted(folder.glob("*/summary.json"))
    found = [brief for file in files for brief in json.loads(file.read_text("utf-8"))]
    return {
        brief["study"]: brief
        for brief in found
        if not any(line["world"] for line in brief["verdicts"])
    }


def status(published: float, ours: Mapping[str, Any] | None, factor: float = 1.0) -> str:
    """Return what our runs say about a published number.

    Args:
        published: The number, one run.
        ours: ``mean``, ``spread`` and ``n`` of our runs under the same recipe and protocol.
        factor: Our number times this is in the unit of the published one.
    """
    if not ours or ours["n"] < _FEWEST_RUNS:
        return NOT_RUN
    mean, spread, n = factor * ours["mean"], factor * ours["spread"], ours["n"]
    reach = float(stats.t.ppf(0.975, n - 1)) * spread * math.sqrt(1 + 1 / n)
    word = "reproduced" if abs(published - mean) <= reach else "contradicted"
    return f"{word} ({mean:.2f} ± {spread:.2f}, n = {n})"


def render_claims(content: Mapping[str, Any], summaries: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page."""
    lines = [_HEAD.format(fewest=_FEWEST_RUNS, not_run=NOT_RUN)]
    claims, sources = content["claims"], content["sources"]
    for task in dict.fromkeys(claim["task"] for claim in claims):
        lines += [f"## {task.capitalize()}", ""]
        of_task = [claim for claim in claims if claim["task"] == task]
        for method in dict.fromkeys(claim["method"] for claim in of_task):
            lines += [f"### {method}: {task}", ""]
            for claim in of_task:
                if claim["method"] == method:
                    lines += _table(claim, sources[claim["source"]], summaries)
    lines += [_SIGNS, *_signs(claims, sources, summaries), "", "## Not read", ""]
    lines += [
        "Published, but not available to us from a source that may be cited; no number is quoted.",
        "",
    ]
    lines += [f"* {line}" for line in content["not_read"]]
    return "\n".join(lines) + "\n"


def _table(
    claim: Mapping[str, Any], source: Mapping[str, str], summaries: Mapping[str, Any]
) -> Iterator[str]:
    read = f"; {_READ[claim['read']]}" if _READ[claim["read"]] else ""
    kind = "Changes. " if claim.get("change") else ""
    yield (
        f"{kind}{claim['model']}; {claim['recipe']}; {claim['protocol']}. Source: "
        f"{source['title']} ({source['id']}), {claim['where']}{read}."
    )
    yield ""
    head = [f"{name} ({unit})" for name, unit in claim["metrics"].items()]
    yield _row(["encoding", *head, "status"])
    yield _row(["---"] + ["---:"] * len(head) + ["---"])
    for name, values in claim["rows"].items():
        shown = [_shown(value, claim.get("change")) for value in values]
        yield _row([name, *shown, _row_status(claim, name, summaries)])
    yield ""


def _shown(value: float | None, change: bool | None) -> str:
    return NOTHING if value is None else f"{value:+}" if change and value < 0 else f"{value}"


def _row_status(claim: Mapping[str, Any], name: str, summaries: Mapping[str, Any]) -> str:
    if name in claim.get("unstated", ()):
        return _UNSTATED
    ours = claim.get("ours") or {}
    variant = ours.get("variants", {}).get(name)
    told = {}
    keys = ours.get("metrics", ())
    for metric, published, key in zip(claim["metrics"], claim["rows"][name], keys, strict=False):
        if variant and key and published is not None:
            found = _mean(summaries.get(ours["study"]), ours, variant, key)
            told[metric] = status(published, found, 100.0 if "_ap" in key else 1.0)
    if set(told.values()) <= {NOT_RUN}:
        return NOT_RUN
    return told.popitem()[1] if len(told) == 1 else "; ".join(f"{m} {t}" for m, t in told.items())


def _mean(
    brief: Mapping[str, Any] | None, ours: Mapping[str, Any], variant: str, metric: str
) -> Mapping[str, Any] | None:
    """Our mean of a number; None where there is none or where it is not comparable."""
    if brief is None or brief.get("level") != "benchmark":
        return None
    wanted = {"task": ours["task"], "protocol": ours["protocol"]}
    wanted |= {"variant": variant, "metric": metric, "world": ""}
    fits = [m for m in brief["means"] if all(m[key] == value for key, value in wanted.items())]
    return fits[0] if len(fits) == 1 else None


def _signs(
    claims: Sequence[Mapping[str, Any]], sources: Mapping[str, Any], summaries: Mapping[str, Any]
) -> Iterator[str]:
    yield _row(["task", "source", "model, protocol", "difference", "metric", "published", "ours"])
    yield _row(["---"] * 5 + ["---:", "---"])
    for claim in claims:
        for one, other in claim.get("pairs", ()):
            for at, metric in enumerate(claim["metrics"]):
                first, second = claim["rows"][one][at], claim["rows"][other][at]
                if first is None or second is None or metric not in _SIGNED:
                    continue
                about = f"{claim['model']}; {claim['recipe']}; {claim['protocol']}"
                source = f"{sources[claim['source']]['title']}, {claim['where']}"
                verdicts = "; ".join(
                    _verdicts(claim["task"], one, other, _SIGNED[metric], summaries)
                )
                pair = f"{one} - {other}"
                change = f"{first - second:+.1f}"
                yield _row(
                    [claim["task"], source, about, pair, metric, change, verdicts or NOT_RUN]
                )


# Metrics whose sign is asked about, and our names of rows that other papers call the same.
_SIGNED = {"top-1": "top1_pct", "box AP": "box_ap", "mask AP": "mask_ap", "mIoU": "miou_pct"}
_SLUGS = {"none": "noenc", "absolute": "absonly", "absolute + relative": "absrel"}
_SLUGS |= {"relative": "relonly"}


def _verdicts(
    task: str, one: str, other: str, metric: str, summaries: Mapping[str, Any]
) -> Iterator[str]:
    pair = (_SLUGS.get(one), _SLUGS.get(other))
    for name, brief in summaries.items():
        for line in brief.get("verdicts", ()):
            same = (line["variant"], line["control"]) == pair
            if same and (line["task"], line["metric"]) == (task, metric):
                level = "mechanism, " if brief["level"] == "mechanism" else ""
                yield f"{line['verdict']} ({level}{name}, {line['protocol']}, n = {line['n']})"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
