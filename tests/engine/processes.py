"""Run a function in several processes that gloo connects, without starting Python anew."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed, multiprocessing


def in_processes(count: int, folder: Path, work: Callable[[int], Any]) -> list[Any]:
    """Return what ``work(rank)`` returns in each of ``count`` forked processes.

    A process that raises ends all others and fails the test with its traceback.
    """
    folder.mkdir(parents=True, exist_ok=True)
    multiprocessing.start_processes(_join, (count, folder, work), count, start_method="fork")
    return [pickle.loads((folder / f"{rank}.pkl").read_bytes()) for rank in range(count)]


def _join(rank: int, count: int, folder: Path, work: Callable[[int], Any]) -> None:
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count))
    # Different on every rank, as on different machines.
    own = folder / f"home_{rank}"
    own.mkdir(exist_ok=True)
    os.chdir(own)
    os.environ["TMPDIR"] = str(own)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder / 'group'}", rank=rank, world_size=count
    )
    result = work(rank)
    distributed.barrier()
    (folder / f"{rank}.pkl").write_bytes(pickle.dumps(result))
    distributed.destroy_process_group()
