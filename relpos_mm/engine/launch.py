"""Start a tool in several processes on this machine, as ``torchrun`` does, from bash or without."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
from pathlib import Path

import torch
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import get_args_parser, run

from .errors import UserError

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def launch(argv: list[str] | None = None) -> None:
    """Run a tool of this project in several processes.

    The environment is that of mmdet's scripts: ``NNODES``, ``NODE_RANK``, ``MASTER_ADDR`` and
    ``PORT``.

    Raises:
        UserError: Wrong arguments, a port in use, or a process that ended with an error.
    """
    parser = argparse.ArgumentParser(
        description="Run a tool in several processes of this machine. NNODES, NODE_RANK, "
        "MASTER_ADDR and PORT are read from the environment."
    )
    parser.add_argument("processes", help="processes (GPUs) on this machine")
    parser.add_argument("tool", help="train or test: tools/train.py or tools/test.py")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of that tool")
    argv = sys.argv[1:] if argv is None else argv
    # "--" lets a misplaced flag arrive as the number of processes, which the message can name.
    helped = {"-h", "--help"} & set(argv[:1])
    args = parser.parse_args(argv if helped else ["--", *argv])
    if not args.processes.isdecimal() or int(args.processes) < 1:
        raise UserError(
            f"the number of processes must be a positive integer, got {args.processes!r}"
        )
    if args.tool not in ("train", "test"):
        raise UserError(f"the tool must be train or test, got {args.tool!r}")
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else None
    if gpus is not None and int(args.processes) > gpus:
        raise UserError(
            f"{args.processes} processes need as many GPUs, this machine shows {gpus} "
            "(CUDA_VISIBLE_DEVICES); start fewer, and scale the batch or the rate with them"
        )
    script = str(TOOLS / f"{args.tool}.py")
    start_processes(int(args.processes), [script, *args.arguments, "--launcher", "pytorch"])


def start_processes(count: int, command: list[str]) -> None:
    """Run a Python script in ``count`` processes that torch connects.

    Raises:
        UserError: A port in use, or a process that ended with an error; all others are ended then.
    """
    flags = [f"--nproc_per_node={count}", *meeting_point()]
    try:
        run(get_args_parser().parse_args([*flags, *command]))
    except ChildFailedError as failed:
        rank, failure = failed.get_first_failure()
        raise UserError(
            f"process {rank} ended {_how(failure.exitcode)}, the others were stopped; "
            "what it said stands above."
        ) from None


def meeting_point() -> list[str]:
    """Return torchrun's flags for the place where the processes meet.

    Raises:
        UserError: ``PORT`` cannot be used, or ``NNODES`` or ``NODE_RANK`` is no possible number.
    """
    nodes, rank = _number("NNODES", 1), _number("NODE_RANK", 0)
    if not rank < nodes:
        raise UserError(f"NODE_RANK={rank} must be below NNODES={nodes}; the first machine is 0")
    if nodes == 1 and not os.environ.get("PORT"):
        return ["--standalone"]  # a free port, so two runs can share a machine
    port = _number("PORT", 29500)
    if rank == 0:
        require_free(port)
    address = os.environ.get("MASTER_ADDR") or "127.0.0.1"
    if nodes > 1 and not os.environ.get("MASTER_ADDR"):
        print("MASTER_ADDR is not set: all nodes are sought on this machine, 127.0.0.1", flush=True)
    return [
        f"--nnodes={nodes}",
        f"--node_rank={rank}",
        f"--master_addr={address}",
        f"--master_port={port}",
    ]


def require_free(port: int) -> None:
    """Check that this machine can listen on ``port``.

    Raises:
        UserError: It cannot.
    """
    if port == 0:
        raise UserError("PORT=0 names no port; unset it to get a free one")
    with socket.socket() as probe:
        # As torch binds it: a port that a finished run has just left may be taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except (OSError, OverflowError) as error:
            raise UserError(
                f"PORT={port} cannot be used ({error}); set another or unset PORT"
            ) from None


def _number(variable: str, default: int) -> int:
    text = os.environ.get(variable) or str(default)
    if not text.isdecimal():
        raise UserError(f"{variable}={text!r} is not a number")
    return int(text)


def _how(exitcode: int) -> str:
    if exitcode >= 0:
        return f"with exit code {exitcode}"
    name = signal.Signals(-exitcode).name
    hint = "; often the machine's memory was full" if name == "SIGKILL" else ""
    return f"by {name}{hint}"
