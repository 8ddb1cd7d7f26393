"""Starting several processes: from Python, from bash, under Slurm; and the end of one of them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from mmengine.config import Config

from relpos_mm.engine import UserError
from relpos_mm.engine.cli import apply_run_flags, run_parser
from relpos_mm.engine.distributed import prepare_processes
from relpos_mm.engine.launch import launch, meeting_point

from .conftest import Workspace, mini_options

CLS = "configs/mini/cls_swin_t_relonly.py"
DYING = """
import os, signal, sys
from torch import distributed
distributed.init_process_group("gloo")
distributed.barrier()
if distributed.get_rank() == 1:
    print("error in process 1: what went wrong", file=sys.stderr, flush=True)
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(2)
distributed.barrier()  # never answered
"""


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("NNODES", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "PORT"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_b089_one_machine_takes_a_free_port(clean: pytest.MonkeyPatch) -> None:
    assert meeting_point() == ["--standalone"]


def test_b089_a_used_port_is_refused_where_the_processes_meet(clean: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        clean.setenv("PORT", port)
        with pytest.raises(UserError, match=f"PORT={port} cannot be used"):
            meeting_point()
        clean.setenv("NNODES", "2")
        clean.setenv("NODE_RANK", "1")  # another machine listens there
        clean.setenv("MASTER_ADDR", "host")
        assert meeting_point() == [
            *("--nnodes=2", "--node_rank=1", "--master_addr=host", f"--master_port={port}")
        ]
    clean.setenv("PORT", "http")
    with pytest.raises(UserError, match="PORT='http' is not a number"):
        meeting_point()


def test_numbers_of_machines_that_cannot_meet(
    clean: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for settings, message in (
        ({"NNODES": "2", "NODE_RANK": "2"}, "NODE_RANK=2 must be below NNODES=2"),
        ({"NNODES": "0", "NODE_RANK": "0"}, "NODE_RANK=0 must be below NNODES=0"),
        ({"NNODES": "1", "PORT": "0"}, "PORT=0 names no port"),
        ({"PORT": "70000"}, "PORT=70000 cannot be used"),
    ):
        for name, value in settings.items():
            clean.setenv(name, value)
        with pytest.raises(UserError, match=message):
            meeting_point()
    clean.setenv("NNODES", "2")
    clean.setenv("NODE_RANK", "1")
    assert "--master_addr=127.0.0.1" in meeting_point()
    assert "MASTER_ADDR is not set" in capsys.readouterr().out


def test_more_processes_than_gpus(clean: pytest.MonkeyPatch) -> None:
    clean.setattr("torch.cuda.is_available", lambda: True)
    clean.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(UserError, match="2 processes need as many GPUs, this machine shows 1"):
        launch(["2", "train", CLS])


@pytest.mark.parametrize(
    ("arguments", "said"), [(["0", "train"], "positive"), (["2", "x"], "train or test")]
)
def test_wrong_arguments_of_the_python_entry(arguments: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        launch(arguments)


@pytest.mark.parametrize("spelling", ["--local_rank", "--local-rank"])
def test_b088_the_environment_wins_over_either_spelling(
    spelling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = run_parser("").parse_args([CLS, f"{spelling}=1"])
    monkeypatch.setenv("LOCAL_RANK", "3")
    apply_run_flags(Config({}), args)
    assert os.environ["LOCAL_RANK"] == "3"
    monkeypatch.delenv("LOCAL_RANK")
    apply_run_flags(Config({}), args)
    assert os.environ["LOCAL_RANK"] == "1"


def test_b088_torchrun_alone_is_enough(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Or each process would train by itself, into one folder."""
    environ = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "here", "RANK": "0", "LOCAL_RANK": "0"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    cfg = Config({})
    apply_run_flags(cfg, run_parser("").parse_args([CLS]))
    assert cfg.launcher == "pytorch"
    assert "Started by torchrun" in capsys.readouterr().out
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")
    apply_run_flags(cfg, run_parser("").parse_args([CLS]))
    assert cfg.launcher == "none"


def test_slurm_gets_the_whole_command(workspace: Workspace) -> None:
    srun = workspace.path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text('#!/usr/bin/env bash\nprintf "%s\\n" "port $MASTER_PORT" "$@"\n')
    srun.chmod(0o755)
    path = f"{srun.parent}{os.pathsep}{os.environ['PATH']}"
    settings = {"GPUS": "16", "NNODES": "2", "PORT": "12345", "SRUN_ARGS": "--mem 64G"}
    said = workspace.ok(
        "slurm_train.sh", "gpu", "job", CLS, "out", "--amp", PATH=path, **settings
    ).splitlines()
    assert said[:4] == ["port 12345", "-p", "gpu", "--job-name=job"]
    for flag in ("--nodes=2", "--ntasks=16", "--ntasks-per-node=8", "--kill-on-bad-exit=1", "64G"):
        assert flag in said
    assert said[-6:] == [CLS, "--work-dir", "out", "--launcher", "slurm", "--amp"]
    few = workspace.run("slurm_train.sh", "gpu", "job", CLS)
    assert few.returncode == 2
    assert "PARTITION JOB CONFIG WORK_DIR" in few.stdout
    bare = workspace.path / "bare"  # a machine without Slurm
    bare.mkdir()
    for tool in ("bash", "dirname"):
        (bare / tool).symlink_to(shutil.which(tool) or tool)
    none = workspace.run("slurm_train.sh", "gpu", "job", CLS, "out", PATH=str(bare))
    assert none.returncode == 2
    assert "srun is not in PATH" in none.stdout


def test_slurms_variables_become_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT"):
        monkeypatch.setenv(name, "")  # restored afterwards
        monkeypatch.delenv(name)
    monkeypatch.setenv("MASTER_ADDR", "here")
    slurm = {"PROCID": "5", "NTASKS": "8", "LOCALID": "1", "JOB_ID": "70001"}
    for name, value in slurm.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)  # mmengine joins there
    cfg = Config(
        {"launcher": "slurm", "val_evaluator": [{"type": "A"}], "test_evaluator": {"type": "B"}}
    )
    prepare_processes(cfg)
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT")
    assert [os.environ[n] for n in names] == ["5", "8", "1", "30001"]
    assert cfg.val_evaluator[0].collect_device == cfg.test_evaluator.collect_device == "gpu"


@pytest.mark.train
@pytest.mark.parametrize("end", ["kill", "exit"])
def test_a_process_that_dies_ends_the_run_with_its_reason(
    tmp_path: Path, repo_root: Path, end: str
) -> None:
    """Within a minute after the start, where the other process would wait for half an hour."""
    script = tmp_path / "dying.py"
    script.write_text(DYING)
    call = (
        "from relpos_mm.engine.launch import start_processes\n"
        "from relpos_mm.engine.cli import run_tool\n"
        f"raise SystemExit(run_tool(lambda: start_processes(2, [{str(script)!r}, {end!r}])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", call],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(repo_root)},
        check=False,
        timeout=60 + 120,  # a slow machine takes its time to import torch
    )
    assert done.returncode == 2
    how = "by SIGKILL" if end == "kill" else "with exit code 2"
    assert f"error: process 1 ended {how}" in done.stderr
    assert "what went wrong" in done.stderr


@pytest.mark.train
def test_two_tasks_of_slurm_train_over_gloo(workspace: Workspace) -> None:
    srun = workspace.path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(
        "#!/usr/bin/env bash\n"
        "while [[ $1 != *python* ]]; do shift; done\nexport SLURM_NTASKS=2 SLURM_NODELIST=here\n"
        'SLURM_PROCID=1 SLURM_LOCALID=1 "$@" &\nSLURM_PROCID=0 SLURM_LOCALID=0 "$@"; wait $!\n'
    )
    srun.chmod(0o755)
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = str(probe.getsockname()[1])
    path = f"{srun.parent}{os.pathsep}{os.environ['PATH']}"
    log = workspace.ok(
        *("slurm_train.sh", "cpu", "job", CLS, "out", *mini_options(2)),
        PATH=path,
        PORT=port,
        MASTER_ADDR="127.0.0.1",
    )
    assert "2 processes on CPU, connected by gloo" in log
    assert workspace.result("out")["cost"]["processes"] == 2
