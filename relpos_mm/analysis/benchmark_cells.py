"""The suite ``cells``: the throughput of study cells side by side, over that of one alone.

A cell is a process with one thread, as the local executor of a study starts it; here each repeats
the training step of a mini config. One process alone and all together take turns.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from statistics import median

import torch
from mmengine.logging import MMLogger

from relpos_mm.data import MissingData, require_data
from relpos_mm.engine.cli import load_config

from .benchmark import LeftOut
from .benchmark_steps import CONFIGS, Work

# n cells that share caches and memory count as n times the throughput from here on.
SHARE = 0.9


@dataclass(frozen=True)
class Scaling:
    """What was measured with some number of processes.

    Attributes:
        config: Path below ``configs/``, without ``.py``.
        processes: Processes side by side.
        alone: Training steps per second of one process, median over the rounds.
        together: Of all processes side by side, added up.
        times: Median over the rounds of ``together`` over ``alone``.
    """

    config: str
    processes: int
    alone: float
    together: float
    times: float

    @property
    def met(self) -> bool:
        """Whether it counts as ``processes`` times the throughput."""
        return self.times >= SHARE * self.processes


def counts(cores: int | None = None) -> list[int]:
    """Numbers of processes to try: powers of two below the cores, and the cores."""
    cores = cores or len(os.sched_getaffinity(0))
    powers = [2**i for i in range(1, cores.bit_length()) if 2**i < cores]
    return [*powers, cores] if cores > 1 else []


def scalings(
    configs: Iterable[str],
    processes: Sequence[int],
    *,
    rounds: int,
    seconds: float,
    batch_size: int | None = None,
) -> Iterator[Scaling | LeftOut]:
    """Measure every config with every number of processes.

    Args:
        configs: Paths below ``configs/``, without ``.py``.
        processes: Numbers of processes, each at least 2.
        rounds: Turns of one process alone and all together.
        seconds: Length of a turn.
        batch_size: Pictures of a step; the config's own number by default.
    """
    if not processes:
        yield LeftOut("cells side by side", "there is one core")
    for config in configs if processes else ():
        try:
            require_data(load_config(str(CONFIGS / f"{config}.py")), ("train", "val"))
        except MissingData:
            yield LeftOut(f"cells of {config}", "its data are not there, see docs/data.md")
            continue
        with _cells(config, max(processes), batch_size) as cells:
            for count in processes:
                turns = [
                    (_steps_per_s(cells[:1], seconds), _steps_per_s(cells[:count], seconds))
                    for _ in range(rounds)
                ]
                yield scaling(config, count, turns)


def scaling(config: str, processes: int, turns: Sequence[tuple[float, float]]) -> Scaling:
    """Sum up turns of (one alone, all together), in training steps per second."""
    return Scaling(
        config,
        processes,
        alone=median(alone for alone, _ in turns),
        together=median(together for _, together in turns),
        times=median(together / alone for alone, together in turns),
    )


@contextmanager
def _cells(config: str, count: int, batch_size: int | None) -> Iterator[list[Connection]]:
    """Processes that are ready to train; they end with the context, however it is left."""
    context = multiprocessing.get_context("spawn")  # as a cell starts: nothing is inherited
    ends = [context.Pipe() for _ in range(count)]
    workers = [
        context.Process(target=_serve, args=(there, config, batch_size), daemon=True)
        for _, there in ends
    ]
    try:
        for worker, (_, there) in zip(workers, ends, strict=True):
            worker.start()
            there.close()  # so that a worker that dies is the end of its pipe
        for here, _ in ends:
            here.recv()
        yield [here for here, _ in ends]
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()


def _steps_per_s(cells: Sequence[Connection], seconds: float) -> float:
    for cell in cells:
        cell.send(seconds)
    return sum(cell.recv() for cell in cells)


def _serve(end: Connection, config: str, batch_size: int | None) -> None:
    """Train for as many seconds as asked, again and again, and answer with steps per second."""
    torch.set_num_threads(1)
    MMLogger.get_current_instance().setLevel("WARNING")  # initial values tell of every parameter
    work = Work(config, batch_size)
    work.training()  # the first step prepares tables and memory
    end.send("ready")
    while True:
        seconds = end.recv()
        started, steps = time.perf_counter(), 0
        while (passed := time.perf_counter() - started) < seconds:
            work.training()
            steps += 1
        end.send(steps / passed)
