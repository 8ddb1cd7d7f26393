"""Interruptions of all kinds lose nothing and do nothing twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import namedtuple
from pathlib import Path

import pytest

from relpos_mm.engine.errors import UserError
from relpos_mm.engine.saving import write_atomically
from relpos_mm.study.cell_run import HELD_ELSEWHERE, LOCK, finish, killed_by, run_cell
from relpos_mm.study.lock import held, is_held
from relpos_mm.study.runner import TRIES, Progress, run_cells, unfinished
from relpos_mm.study.state import (
    FAILED,
    FINISHED,
    HALF_DONE,
    RUNNING,
    WAITING,
    log_tail,
    sealed,
    state_of,
)

from .stubs import ForkPool, ThreadPool, calls, fork, stub_cells, until

BOTH = ["train", "test"]


def run(cells: list, root: Path, pool: object = None, jobs: int = 2) -> Progress:
    return run_cells(cells, root, pool or ThreadPool(), jobs, poll_s=0.01)  # type: ignore[arg-type]


def test_cells_run_behind_what_they_need_and_only_once(tmp_path: Path) -> None:
    cells = stub_cells(tmp_path)
    pool = ThreadPool()
    progress = run(cells, tmp_path, pool)
    assert {state.word for state in progress.states.values()} == {FINISHED}
    for variant in ("one", "two"):
        order = [pool.submitted.index(f"{task}-{variant}") for task in ("cls", "dense")]
        assert order == sorted(order)
    assert [calls(cell) for cell in cells] == [BOTH] * 4
    sealed = json.loads((tmp_path / "dense-one" / "result.json").read_text())
    assert sealed["cell"]["id"] == "dense-one"
    assert sealed["cell"]["wall_s"] > 0
    again = ThreadPool()
    run(cells, tmp_path, again)
    assert again.submitted == []


def test_a_dense_cell_waits_although_there_is_room(tmp_path: Path) -> None:
    cells = stub_cells(tmp_path)
    (tmp_path / "cls-one" / "hold").touch()
    seen: list[dict[str, str]] = []

    def watch(progress: Progress) -> None:
        seen.append({key: state.word for key, state in progress.states.items()})
        if seen[-1]["dense-two"] == FINISHED:
            (tmp_path / "cls-one" / "hold").unlink(missing_ok=True)

    run_cells(cells, tmp_path, ThreadPool(), jobs=4, watch=watch, poll_s=0.01)
    held_back = [words for words in seen if words["cls-one"] == RUNNING]
    assert held_back
    assert {words["dense-one"] for words in held_back} == {"waiting"}


def test_a_failing_cell_is_tried_twice_and_shown(tmp_path: Path) -> None:
    cells = stub_cells(tmp_path)
    (tmp_path / "cls-one" / "broken").touch()
    progress = run(cells, tmp_path)
    assert unfinished(progress) == ["cls-one"]
    assert progress.states["cls-one"].word == FAILED
    assert calls(cells[0]) == ["train"] * TRIES
    assert progress.blocked == {"dense-one"}
    assert calls(cells[2]) == []
    assert progress.states["dense-two"].word == FINISHED
    assert log_tail(cells[0].path).endswith("train has met a stone")
    (tmp_path / "cls-one" / "broken").unlink()
    assert unfinished(run(cells, tmp_path)) == []
    assert calls(cells[2]) == BOTH
    assert calls(cells[3]) == BOTH


def test_a_second_runner_is_refused(tmp_path: Path) -> None:
    cells = stub_cells(tmp_path)
    with held(tmp_path / ".runner.lock") as lock:
        assert lock is not None
        with pytest.raises(UserError, match="Another runner works on"):
            run(cells, tmp_path)
    assert calls(cells[0]) == []


def test_killed_cell_goes_on_in_the_same_run(tmp_path: Path) -> None:
    cells = stub_cells(tmp_path)[:1]
    pool, killed = ForkPool(), []

    def watch(progress: Progress) -> None:
        if not killed and calls(cells[0]) == BOTH:
            killed.append(pool.children["cls-one"].pid)
            os.kill(killed[0], signal.SIGKILL)
            os.kill(int((cells[0].path / "pid").read_text()), signal.SIGKILL)

    hold_in_second_step(cells[0].path)
    progress = run_cells(cells, tmp_path, pool, 1, watch, poll_s=0.01)
    assert killed
    assert progress.tries == {"cls-one": 2}
    assert progress.states["cls-one"].word == FINISHED
    assert calls(cells[0]) == ["train", "test", "test"]  # the finished step is not repeated


def hold_in_second_step(folder: Path) -> None:
    """Let the first call of the second step wait for its end."""
    script = folder.parent / "script.py"
    wait = 'while step == "test" and not (folder / "once").exists():\n'
    wait += '    (folder / "once").touch()\n    time.sleep(60)\n'
    text = script.read_text()
    script.write_text(text.replace('if (folder / "broken")', wait + 'if (folder / "broken")'))


def test_killed_runner_leaves_cells_that_the_next_one_waits_for(tmp_path: Path) -> None:
    cells = stub_cells(tmp_path)
    for cell in cells[:2]:
        (cell.path / "hold").touch()
    first = fork(lambda: run_cells(cells, tmp_path, ForkPool(), 2, poll_s=0.01))
    until(lambda: all(calls(cell) for cell in cells[:2]))
    os.kill(first.pid, signal.SIGKILL)
    until(first.done)
    assert state_of(cells[0]).word == RUNNING  # its own process goes on

    def watch(progress: Progress) -> None:
        for cell in cells[:2]:
            (cell.path / "hold").unlink(missing_ok=True)

    pool = ThreadPool()
    progress = run_cells(cells, tmp_path, pool, 2, watch, poll_s=0.01)
    assert {state.word for state in progress.states.values()} == {FINISHED}
    assert [calls(cell) for cell in cells] == [BOTH] * 4


def test_a_training_without_its_parent_still_holds_the_cell(tmp_path: Path) -> None:
    cell = stub_cells(tmp_path)[0]
    (cell.path / "cell.json").write_text(json.dumps(cell.as_json()))
    (cell.path / "hold").touch()
    parent = fork(lambda: run_cell(str(cell.path)))
    until(lambda: (cell.path / "pid").exists() and (cell.path / "pid").read_text())
    os.kill(parent.pid, signal.SIGKILL)
    until(parent.done)
    assert is_held(cell.path / LOCK)
    assert run_cell(str(cell.path)) == HELD_ELSEWHERE
    (cell.path / "hold").unlink()
    until(lambda: not is_held(cell.path / LOCK))
    assert state_of(cell).word == HALF_DONE
    assert run_cell(str(cell.path)) == 0
    assert state_of(cell).word == FINISHED


def test_a_full_disk_stops_the_runner_before_it_starts_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(100, 99, 1))
    cells = stub_cells(tmp_path)
    progress = run(cells, tmp_path)
    assert "Make room and run again" in progress.note
    assert [calls(cell) for cell in cells] == [[]] * 4
    monkeypatch.undo()
    assert unfinished(run(cells, tmp_path)) == []


def test_a_cell_that_cannot_be_noted_down_does_not_end_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, content: bytes) -> None:
        if path.parent.name == "cls-one":
            raise OSError(28, "No space left on device")
        write_atomically(path, content)

    monkeypatch.setattr("relpos_mm.study.runner.write_atomically", write)
    cells = stub_cells(tmp_path)
    progress = run(cells, tmp_path)
    assert "No space left" in progress.errors["cls-one"]
    assert progress.states["dense-two"].word == FINISHED
    assert calls(cells[0]) == calls(cells[2]) == []
    monkeypatch.undo()
    assert unfinished(run(cells, tmp_path)) == []
    assert calls(cells[2]) == BOTH


def test_a_cut_note_and_a_foreign_result_do_not_count(tmp_path: Path) -> None:
    cell = stub_cells(tmp_path)[0]
    (cell.path / "attempts.jsonl").write_text('{"step": "train", "beg')
    for foreign in ("[1]", '{"cell": "x"}', '{"cell": {"id": "another"}}'):
        (cell.path / "result.json").write_text(foreign)
        assert sealed(cell.path, cell.id) is None
    assert state_of(cell).word == "waiting"
    run([cell], tmp_path)
    assert state_of(cell).word == FINISHED


def test_a_cell_whose_commands_were_run_by_hand_is_finished_by_name(tmp_path: Path) -> None:
    cell = stub_cells(tmp_path)[0]
    with pytest.raises(UserError, match=r"cls-one/result\.json"):
        finish(cell)
    assert state_of(cell).word == WAITING
    (cell.path / "result.json").write_text('{"phase": "train", "cost": {"wall_s": 3.5}}')
    finish(cell)
    assert state_of(cell).word == FINISHED
    assert sealed(cell.path, cell.id)["cell"]["wall_s"] == 3.5
    pool = ThreadPool()
    run([cell], tmp_path, pool)
    assert pool.submitted == []


@pytest.mark.parametrize("spoilt", [None, "{"])
def test_a_result_that_is_lost_after_the_training_is_named_with_the_remedy(
    tmp_path: Path, spoilt: str | None
) -> None:
    cell = stub_cells(tmp_path)[0]
    run([cell], tmp_path)
    result = cell.path / "result.json"
    result.unlink() if spoilt is None else result.write_text(spoilt)
    progress = run([cell], tmp_path)
    assert unfinished(progress) == [cell.id]
    assert f"delete {cell.path} to train the cell anew" in progress.errors[cell.id]


def test_a_signal_that_ended_a_cell_is_named(tmp_path: Path) -> None:
    (cell, *_) = stub_cells(tmp_path)
    assert killed_by(cell.path) == ""
    lines = [5, {"step": "train", "code": 0}, {"step": "test", "code": -9}, {"step": "test"}]
    (cell.path / "attempts.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    assert killed_by(cell.path).startswith("killed by SIGKILL")
    assert state_of(cell).word == HALF_DONE
