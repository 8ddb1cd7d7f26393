"""The benchmark's page is renewed by suites, and loses nothing where a record does not fit."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from relpos_mm.analysis.benchmark import LeftOut
from relpos_mm.analysis.benchmark_page import read_record, renewed, write_page
from relpos_mm.analysis.benchmark_record import dump
from relpos_mm.analysis.benchmark_report import PICTURE, render
from relpos_mm.engine.errors import UserError

from .rows import row
from .test_benchmark_report import BACKBONE, CELLS, line_with, record_of

GONE = LeftOut("cells of mini/cls", "its data are not there", suite="cells")
STAYS = LeftOut("timm at 1x5x5", "it cannot", suite="backbones")
OLD = record_of(BACKBONE, row(), left_out=(STAYS, GONE), cells=[], new_grid_ms=1.5)
BY = record_of(row(name="rel"), suites=("cells", "calls"), cells=[CELLS], new_grid_ms=1.0)


def call(tool: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark.py", *arguments])
    tool.main()


def saved(record: dict[str, Any], file: Path) -> str:
    file.write_text(dump(record), encoding="utf-8")
    return str(file)


def test_suites_are_renewed_one_by_one() -> None:
    both = renewed(OLD, BY)
    assert [one["name"] for one in both["rows"]] == ["RelPosSwin", "rel"]
    assert [one["what"] for one in both["left_out"]] == ["timm at 1x5x5"]
    assert (both["cells"], both["new_grid_ms"]) == ([CELLS], 1.0)
    first, second = both["runs"]
    assert first["suites"] == ["parity", "backbones", "trunk", "steps"]
    assert second == BY["runs"][0]
    assert renewed(both, OLD) == OLD  # nothing of a suite stays behind

    page = render(both)
    assert line_with(page, "- parity, backbones, trunk, steps: ").endswith(
        "Renewed since: cells, calls."
    )
    assert line_with(page, "- cells, calls: ")


def test_a_suite_that_found_nothing_leaves_the_old_numbers() -> None:
    by = record_of(row(name="rel"), suites=("calls",), left_out=(GONE,), new_grid_ms=1.0)
    both = renewed({**OLD, "cells": [CELLS]}, by)
    assert both["cells"] == [CELLS]
    assert len(both["left_out"]) == 2


def test_numbers_of_no_suite_are_not_lost_in_silence() -> None:
    with pytest.raises(KeyError, match="speed_of_light"):
        renewed(OLD, {**BY, "speed_of_light": 1})


def test_the_tool_renews_suites_of_the_page(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for record in (OLD, BY):
        file = saved(record, tmp_path / "record.json")
        call(tool, monkeypatch, "--render", file, "--doc")
    kept = read_record(tmp_path / "docs/performance.json")
    assert kept == renewed(OLD, BY)
    assert (tmp_path / "docs/performance.md").read_text(encoding="utf-8") == render(kept)
    assert (tmp_path / "docs" / PICTURE).is_file()


def test_what_was_measured_is_told_apart_from_what_was_asked_for(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "suites", lambda *_: [("steps", iter([LeftOut("a", "no data")]))])
    out = tmp_path / "record.json"
    call(tool, monkeypatch, "steps", "cells", "--out", str(out))
    record = read_record(out)
    assert [one["suite"] for one in record["left_out"]] == ["steps"]
    assert record["runs"][0]["suites"] == []
    assert "cells" not in record


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("calls --doc --only rel --dtypes float32", "leave --only, --dtypes out"),
        ("--doc --steps training", "leave --steps out"),
        ("--doc --libraries timm --sizes 2x224x224", "leave --libraries, --sizes out"),
        ("--doc --shapes detr --configs mini/cls_swin_t_relonly", "leave --shapes, --configs out"),
        ("--doc --device cuda", "--doc renews the page of a CPU"),
        ("cells --render a.json", "--render shows all suites of a record"),
    ],
)
def test_the_page_takes_whole_suites(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys, arguments: str, message: str
) -> None:
    monkeypatch.setattr(tool, "run", lambda _: pytest.fail("it measures"))
    with pytest.raises(SystemExit, match="2"):
        call(tool, monkeypatch, *arguments.split())
    assert message in capsys.readouterr().err


def test_a_narrowed_record_or_a_wrong_one_leaves_the_page(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_page(tmp_path / "docs", None, OLD)
    before = (tmp_path / "docs/performance.json").read_bytes()
    wrong = record_of(row(), left_out=(LeftOut("rel", "it differs", wrong=True, suite="calls"),))
    for record, message in (
        (record_of(row(), narrowed=("--only",)), "measure without --only"),
        (wrong, "results differ"),
    ):
        file = saved(record, tmp_path / "record.json")
        with pytest.raises(UserError, match=message):
            call(tool, monkeypatch, "--render", file, "--doc")
    assert (tmp_path / "docs/performance.json").read_bytes() == before


@pytest.mark.parametrize("content", ["{", "[]", "1", json.dumps({"rows": [], "left_out": []})])
def test_another_file_is_refused_before_anything_is_measured(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.setattr(tool, "run", lambda _: pytest.fail("it measures"))
    page = tmp_path / "docs/performance.json"
    page.parent.mkdir()
    page.write_text(content)
    with pytest.raises(UserError, match=r"performance.json is no record of the benchmark: "):
        call(tool, monkeypatch, "--doc")
    with pytest.raises(UserError, match=r"none.json cannot be read: No such file"):
        call(tool, monkeypatch, "--render", str(tmp_path / "none.json"))
