"""What a run used: pictures per second, memory and the precision of its numbers."""

from __future__ import annotations

import resource
import sys

import torch
from mmengine.runner import Runner

from .facts import batch_fact, optimiser_fact


def training_rate(runner: Runner) -> float | None:
    """Return pictures per second over the logged training iterations of this start, all processes.

    Loading is part of it, validation is not. None where nothing was timed.
    """
    hub = runner.message_hub
    if "train/time" not in hub.log_scalars:
        return None
    seconds = hub.get_scalar("train/time").mean()
    batch = batch_fact(runner)
    return round(batch["per_process"] * batch["processes"] / seconds, 2) if seconds > 0 else None


def loading_share_pct(runner: Runner) -> float | None:
    """Return the share of the training iterations' time in which the model waited for data, in %.

    None where nothing was timed.
    """
    hub = runner.message_hub
    if not {"train/data_time", "train/time"} <= hub.log_scalars.keys():
        return None
    seconds = hub.get_scalar("train/time").mean()
    share = hub.get_scalar("train/data_time").mean() / seconds if seconds > 0 else None
    return None if share is None else round(100 * float(share), 1)


def peak_memory_mib() -> int:
    """Return the highest memory use so far, in MiB: of the GPU where one is used, else of this
    process.
    """
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() // 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS, KiB elsewhere
    return peak // (2**20 if sys.platform == "darwin" else 2**10)


def precision_fact(runner: Runner, phase: str) -> dict[str, str | None]:
    """Return the types of the numbers in training (None in a test) and in evaluation."""
    if phase == "train":
        training, loop = optimiser_fact(runner)["precision"], runner.val_loop
    else:
        training, loop = None, runner.test_loop
    evaluation = "float16" if getattr(loop, "fp16", False) else "float32"
    return {"training": training, "evaluation": evaluation}
