"""The same cells through local processes and through submitit."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from relpos_mm.engine.errors import UserError
from relpos_mm.study.executors import LocalPool, SubmititPool, pool_of
from relpos_mm.study.runner import run_cells, unfinished
from relpos_mm.study.spec import Executor
from relpos_mm.study.state import FINISHED

from .stubs import stub_cells
from .toys import toy_study

needs_submitit = pytest.mark.skipif(
    importlib.util.find_spec("submitit") is None, reason="submitit is an extra"
)


def test_what_goes_wrong_around_a_cell_is_kept(tmp_path: Path) -> None:
    cells = stub_cells(tmp_path, steps=("nothing",))[:1]  # no result.json to seal
    progress = run_cells(cells, tmp_path, LocalPool(1), 1, poll_s=0.01)
    assert unfinished(progress) == ["cls-one"]
    assert re.search(r"result\.json: .*put the file back, or delete", progress.errors["cls-one"])


@needs_submitit
def test_submitit_takes_the_same_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = toy_study(tmp_path, monkeypatch)
    parameters = {"timeout_min": 5, "slurm_partition": "big"}
    study = replace(study, executor=Executor("slurm", 2, parameters))
    cells = stub_cells(tmp_path)
    progress = run_cells(cells, tmp_path, SubmititPool(study, "debug"), 2, poll_s=0.01)
    assert {state.word for state in progress.states.values()} == {FINISHED}
    assert json.loads((cells[2].path / "result.json").read_text())["cell"]["id"] == "dense-one"


@needs_submitit
def test_a_parameter_that_submitit_does_not_know_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = toy_study(tmp_path, monkeypatch)
    study = replace(study, executor=Executor("slurm", 2, {"partitionz": "big"}))
    with pytest.raises(UserError, match="partitionz"):
        SubmititPool(study, "debug")


@needs_submitit
@pytest.mark.skipif(shutil.which("srun") is not None, reason="this machine has Slurm")
def test_without_slurm_the_remedy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = toy_study(tmp_path, monkeypatch, executor={"kind": "slurm"})
    with pytest.raises(UserError, match="plan --print"):
        pool_of(study, study.executor)


def test_without_submitit_the_remedy_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = toy_study(tmp_path, monkeypatch)
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UserError, match=r"pip install 'relpos-mm\[slurm\]'"):
        pool_of(study, Executor("slurm"))
