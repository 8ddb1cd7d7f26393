"""The ledger of published numbers: complete, rendered, quoted without change, judged by rule."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from relpos_mm.engine.errors import UserError
from relpos_mm.study.claims import (
    NOT_RUN,
    NOTHING,
    load_summaries,
    read_claims,
    render_claims,
    status,
)
from relpos_mm.study.paper import PAPERS

from .test_report import report
from .toys import toy_study, whole_study

_UNITS = {"top1_pct": "top-1", "box_ap": "box AP", "mask_ap": "mask AP", "miou_pct": "mIoU"}
_ROWS = {"noenc": "none", "absonly": "absolute", "absrel": "absolute + relative"}
_ROWS |= {"relonly": "relative"}


@pytest.fixture(scope="module")
def content(repo_root: Path) -> dict[str, Any]:
    return read_claims(repo_root / "docs" / "claims.yaml")


def test_the_page_is_what_the_data_and_the_reports_say(
    repo_root: Path, content: dict[str, Any]
) -> None:
    docs = repo_root / "docs"
    page = render_claims(content, load_summaries(docs / "studies"))
    assert (docs / "claims.md").read_text() == page, "run python tools/update_claims.py"


def test_every_number_has_its_row_source_and_protocol(content: dict[str, Any]) -> None:
    page = render_claims(content, {})
    for claim in content["claims"]:
        source = content["sources"][claim["source"]]
        about = f"{claim['protocol']}. Source: {source['title']} ({source['id']}), {claim['where']}"
        assert about in page
        for name, values in claim["rows"].items():
            told = " | ".join(NOTHING if value is None else str(value) for value in values)
            assert f"| {name} | {told} | " in page
    assert {claim["source"] for claim in content["claims"]} == set(content["sources"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "hearsay"}, "not listed under sources"),
        ({"where": ""}, "has no where"),
        ({"metrics": {"top-1": "", "top-5": "%"}}, "a metric has no unit"),
        ({"rows": {"none": [1.0]}}, "not one number, or null, per metric"),
        ({"rows": {"none": [None, None]}}, "not one number, or null, per metric"),
        ({"rows": {"none": ["80.1", 1.0]}, "pairs": [], "ours": {}}, "is no number"),
        ({"pairs": [["sines", "none"]]}, "rows that are not there: sines"),
        ({"status": "reproduced"}, "unknown keys: status"),
    ],
)
def test_an_entry_that_lacks_something_is_named(
    tmp_path: Path, content: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    changed = copy.deepcopy(content)
    changed["claims"][0].update(change)
    (tmp_path / "claims.yaml").write_text(json.dumps(changed))  # JSON is YAML
    with pytest.raises(UserError, match=message):
        read_claims(tmp_path / "claims.yaml")


def test_a_status_comes_from_our_runs_alone() -> None:
    runs = {"mean": 0.505, "spread": 0.002, "n": 6}  # a t of 2.57 times 0.2 times 1.08: 0.556
    assert status(50.5, runs, 100.0) == "reproduced (50.50 ± 0.20, n = 6)"
    assert status(51.05, runs, 100.0).startswith("reproduced")
    assert status(51.06, runs, 100.0).startswith("contradicted")
    assert status(50.5, {**runs, "n": 2}, 100.0) == NOT_RUN
    assert status(50.5, None) == NOT_RUN


def test_reports_decide_rows_and_signs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: dict[str, Any]
) -> None:
    study = toy_study(tmp_path, monkeypatch)
    whole_study(study)
    report(study, tmp_path / "studies" / "toy")
    found = load_summaries(tmp_path / "studies")
    row = "| detection | Swin Transformer, Table 4 |"
    (line,) = [
        each
        for each in render_claims(content, found).splitlines()
        if each.startswith(row) and "| absolute - none | box AP |" in each
    ]
    assert line.endswith("| -0.2 | hurts (mechanism, toy, toy-val, n = 6) |")
    # The numbers themselves are judged by the full recipe under the same protocol alone.
    assert "reproduced (" not in render_claims(content, found)
    real = json.loads(
        json.dumps(found["toy"])
        .replace('"level": "mechanism"', '"level": "benchmark"')
        .replace("toy-val", "imagenet1k-val-center-crop")
    )
    page = render_claims(content, {"sign_flip": real})
    assert re.search(r"\| none \| 80\.1 \| 94\.9 \| reproduced \(80\.22 ± 0\.15, n = 6\) \|", page)
    assert re.search(
        r"\| absolute \| 80\.5 \| 95\.2 \| contradicted \(84\.2\d ± 0\.\d+, n = 6\)", page
    )
    short = render_claims(content, {"sign_flip_ladder": real})
    assert "reproduced (" not in short


def test_a_study_that_varies_its_pictures_is_left_out(tmp_path: Path) -> None:
    for name, worlds in (("plain", [""]), ("knob", ["", "a.layout050"])):
        brief = {"study": name, "verdicts": [{"world": world} for world in worlds]}
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text(json.dumps([brief]))
    assert [*load_summaries(tmp_path)] == ["plain"]


def test_the_papers_of_reports_are_the_ledgers(content: dict[str, Any]) -> None:
    claims = [c for c in content["claims"] if (c["source"], c["where"]) == ("swin", "Table 4")]
    for column in PAPERS["swin_table4"][1]:
        (claim,) = [claim for claim in claims if claim["task"] == column.task]
        at = list(claim["metrics"]).index(_UNITS[column.metric])
        assert column.values == {slug: claim["rows"][row][at] for slug, row in _ROWS.items()}


def test_pages_quote_what_the_ledger_holds(repo_root: Path, content: dict[str, Any]) -> None:
    """Every number with a decimal point under "Published results" is in an entry for the page."""
    quoting = set()
    for page in sorted((repo_root / "docs" / "encodings").glob("*.md")):
        section = re.search(r"## Published results\n(.*?)\n## ", page.read_text(), re.S)
        numbers = re.findall(r"(?<![\w.])([+-]?\d+\.\d+)(?![\w.])", section[1] if section else "")
        claims = [claim for claim in content["claims"] if page.stem in claim.get("pages", ())]
        known = {f"{value:g}" for claim in claims for value in _values(claim)}
        missing = [text for text in numbers if f"{float(text):g}" not in known]
        assert not missing, f"{page.name} quotes numbers that no entry for it holds"
        if numbers:
            quoting.add(page.stem)
    named = {page for claim in content["claims"] for page in claim.get("pages", ())}
    assert named == quoting


def _values(claim: dict[str, Any]) -> set[float]:
    """The numbers of an entry, and the differences of any two rows under one metric."""
    columns = [
        [v for v in column if v is not None] for column in zip(*claim["rows"].values(), strict=True)
    ]
    apart = {round(a - b, 2) for column in columns for a in column for b in column}
    return {value for column in columns for value in column} | apart | {1.9, 2.0}  # iRPE's ratios


def test_tables_of_pages_agree_cell_by_cell(repo_root: Path, content: dict[str, Any]) -> None:
    compared = 0
    for claim in (each for each in content["claims"] if not each.get("change")):
        for stem in claim.get("pages", ()):
            text = (repo_root / "docs" / "encodings" / f"{stem}.md").read_text()
            for head, rows in _tables(text):
                for row in rows:
                    if row[0] not in claim["rows"] or head[0] != "encoding":
                        continue
                    for name, shown in zip(head, row, strict=True):
                        if name in claim["metrics"]:
                            at = list(claim["metrics"]).index(name)
                            assert float(shown) == claim["rows"][row[0]][at], (stem, row)
                            compared += 1
    assert compared >= 40


def _tables(text: str) -> list[tuple[list[str], list[list[str]]]]:
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.M)
    cells = [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        for block in blocks
    ]
    return [(rows[0], rows[2:]) for rows in cells]
