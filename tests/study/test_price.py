"""The price: waves, lanes, and measured hours in place of expected ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relpos_mm.study.cell import cell_of, waves
from relpos_mm.study.price import price_of, wall_hours

from .stubs import stub_cells
from .toys import toy_study


def test_waves_and_hours_follow_the_edges(tmp_path: Path) -> None:
    cells = stub_cells(tmp_path)
    assert [[cell.id for cell in wave] for wave in waves(cells)] == [
        ["cls-one", "cls-two"],
        ["dense-one", "dense-two"],
    ]
    hours = {"cls-one": 1.0, "cls-two": 3.0, "dense-one": 2.0, "dense-two": 1.0}
    assert wall_hours(cells, hours, 1, set()) == 7.0
    assert wall_hours(cells, hours, 2, set()) == 4.0  # 1 + 2 beside 3, then 1
    assert wall_hours(cells, hours, 9, set()) == 4.0
    assert wall_hours(cells[2:], hours, 2, {"cls-one", "cls-two"}) == 2.0
    assert wall_hours([], hours, 2, set()) == 0.0


def test_finished_cells_replace_what_the_file_expects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = toy_study(tmp_path, monkeypatch)
    names = {"cls": "classification", "dense": "detection"}
    cells = [replace(cell, task=names[cell.task], gpus=8) for cell in stub_cells(tmp_path)]
    note: dict[str, Any] = {"step": "train", "began": 0.0, "ended": 7200.0, "code": 0}
    (cells[0].path / "attempts.jsonl").write_text(f"{json.dumps(note)}\n")
    price = price_of(study, cells, {"cls-one"}, jobs=1)
    assert price.measured == {"classification"}
    assert price.hours["cls-two"] == 2.0
    assert price.hours["dense-one"] == 1.0
    assert price.left({"cls-one"}) == "4.0 h to go with 1 at a time, 32 GPU hours"


def test_unknown_hours_are_said_to_be_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = toy_study(tmp_path, monkeypatch)
    tasks = {"cls": replace(study.tasks["classification"], hours=None)}
    cells = stub_cells(tmp_path)[:2]
    price = price_of(replace(study, tasks=tasks), cells, set(), jobs=1)
    assert price.left(set()) == "no hours known for cls"


def test_cells_survive_their_file_and_their_shell(tmp_path: Path) -> None:
    cell = stub_cells(tmp_path)[2]
    assert cell_of(json.loads(json.dumps(cell.as_json()))) == cell
    step = replace(cell.steps[0], argv=("tools/transfer.py", "@last:a b", "out 1.pth"))
    assert step.line() == "python tools/transfer.py \"$(cat 'a b'/last_checkpoint)\" 'out 1.pth'"
