"""What a run used: pictures per second, memory and the precision of its numbers."""

from __future__ import annotations

import resource
import sys
import warnings
from typing import Any

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


def macs_fact(runner: Runner) -> dict[str, Any]:
    """Return the multiply-adds of the part that takes encodings, and the encodings' share.

    Counted for one picture of the task's usual size, or of the protocol's where that is smaller.
    Nothing where it cannot be counted: a finished training does not fail for it.
    """
    from relpos_mm.analysis.cost import USUAL_SIZE, gmac_share  # imports this package

    cfg = runner.cfg
    height, width = USUAL_SIZE.get(cfg.get("task"), USUAL_SIZE["classification"])
    try:
        scales = (cfg.get("protocol") or {}).get("scales") or [(height, width)]
        longest = max(scales[0])
        size = (min(height, longest), min(width, longest))
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said when the model itself was built
            found = gmac_share(cfg.model.to_dict(), size)
    except Exception as error:  # of any model and any config
        runner.logger.warning(f"The encodings' multiply-adds were not counted: {error!r}")
        return {}
    if found is None:
        return {}
    total, position = found
    share = 100 * position / total
    counted = {"gmac": total, "gmac_position": position, "gmac_position_pct": share}
    return {**counted, "gmac_picture": list(size)}
