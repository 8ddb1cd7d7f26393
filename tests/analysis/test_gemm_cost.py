"""The demo's and the mini study's time by BLAS: what is run, and that the page shows the record."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from relpos_mm.analysis import gemm_cost
from relpos_mm.analysis.gemm_cost import (
    DEMO,
    PAGE,
    ROUTES,
    SLICE,
    STUDY,
    cells,
    measured,
    table,
    times_whole,
)
from relpos_mm.engine.errors import UserError
from relpos_mm.study.planning import plan
from relpos_mm.study.spec import read_study

Call = tuple[list[str], dict[str, str]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Commands are noted instead of run."""
    noted: list[Call] = []

    def run(command: list[str], cwd: Path, env: dict[str, str]) -> SimpleNamespace:
        noted.append((command, env))
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    return noted


@pytest.mark.parametrize("route", ROUTES)
def test_a_job_runs_with_the_route(route: str, calls: list[Call], tmp_path: Path) -> None:
    row = measured(DEMO, route, tmp_path)
    [(command, env)] = calls
    assert command[1:] == ["tools/demo.py", "--work-dir", str(tmp_path)]
    assert env == {**os.environ, gemm_cost.VARIABLE: route}
    assert (row["job"], row["route"]) == (DEMO, route)
    assert row["minutes"] > 0
    assert row["cpu_minutes"] == 0  # no process ran


def test_the_slice_trains_cells_of_the_study(calls: list[Call], tmp_path: Path) -> None:
    measured(SLICE, ROUTES[0], tmp_path)
    file = calls[0][0][3]
    whole, part = read_study(STUDY), read_study(file)
    assert part.tasks == whole.tasks
    assert part.executor == whole.executor
    trained = plan(replace(part, name=STUDY))
    assert len(trained) == cells()
    assert {cell.id for cell in trained} < {cell.id for cell in plan(whole)}
    assert len(plan(whole)) == cells() * times_whole()


def test_a_failed_job_has_no_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=1))
    with pytest.raises(UserError, match=r"demo, onednn: tools/demo.py .* failed"):
        measured(DEMO, "onednn", tmp_path)


def test_the_table_scales_the_slice_to_the_study() -> None:
    rows = [
        {"job": job, "route": route, "minutes": minutes, "cpu_minutes": 3 * minutes}
        for job, times in ((DEMO, 1), (SLICE, 2))
        for route, minutes in zip(ROUTES, (4 * times, 5 * times), strict=True)
    ]
    lines = table(rows).splitlines()
    assert [float(cell) for cell in lines[2].split("|")[2:-1]] == [4.0, 5.0, 0.8, 12.0, 15.0]
    whole = [8 * times_whole(), 10 * times_whole()]
    assert [float(cell) for cell in lines[4].split("|")[2:4]] == whole


def test_the_page_shows_the_record() -> None:
    rows = PAGE.rows()
    assert [(row["job"], row["route"]) for row in rows] == [
        (job, route) for job in (DEMO, SLICE) for route in ROUTES
    ]
