"""What a person sees while a study runs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from relpos_mm.study.lock import held
from relpos_mm.study.price import price_of
from relpos_mm.study.runner import Progress
from relpos_mm.study.screen import Screen
from relpos_mm.study.state import FINISHED, HALF_DONE, RUNNING, WAITING, State, state_of

from .stubs import stub_cells
from .toys import toy_study


def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool) -> str:
    tasks = {"cls": {"config": "{variant}", "metrics": ["m"], "hours": 1}}
    tasks["dense"] = {**tasks["cls"], "start": "cls"}
    study = toy_study(tmp_path, monkeypatch, tasks=tasks)
    cells = stub_cells(tmp_path)
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120, color_system=None)
    words = (FINISHED, RUNNING, WAITING, HALF_DONE)
    states = {cell.id: State(word) for cell, word in zip(cells, words, strict=True)}
    states["cls-two"] = State(RUNNING, "train", "0:03:10")
    with Screen(cells, lambda done: price_of(study, cells, done, 2), console) as screen:
        for _ in range(2):
            screen.show(Progress(states, note="the disk is full"))
    return out.getvalue()


def test_a_terminal_shows_the_whole_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(tmp_path, monkeypatch, terminal=True)
    assert "1 of 4 cells finished" in text
    assert "training has 0:03:10 to go" in text
    assert "the disk is full" in text


def test_elsewhere_every_change_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = shown(tmp_path, monkeypatch, terminal=False).splitlines()
    assert lines == [
        "cls-one: finished",
        "cls-two: running train",
        "dense-two: half-done",
        "1 of 4 cells finished; 1.0 h to go with 2 at a time",
        "the disk is full",
    ]


def test_eta_is_the_last_one_of_the_log(tmp_path: Path) -> None:
    cell = stub_cells(tmp_path)[0]
    (cell.path / "log.txt").write_text("eta: 0:09:00\nIter(train) eta: 1 day, 0:03:10  time\n")
    with held(cell.path / ".lock"):
        assert state_of(cell) == State(RUNNING, "", "1 day, 0:03:10")
