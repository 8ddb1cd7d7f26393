"""Loader processes: settings that torch would refuse, and a hint when they are the bottleneck."""

from __future__ import annotations

from typing import Any

from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.registry import HOOKS
from mmengine.runner import Runner

_NEED_PROCESSES = {"persistent_workers": False, "prefetch_factor": None}


def fit_loaders(cfg: Config) -> None:
    """Drop what a loader without processes cannot have, so that ``num_workers=0`` is enough."""
    for part in ("train", "val", "test"):
        loader = cfg.get(f"{part}_dataloader")
        if not loader or loader.get("num_workers", 0):
            continue
        for key, neutral in _NEED_PROCESSES.items():
            if loader.get(key):
                loader[key] = neutral
                print_log(f"{part}_dataloader.num_workers is 0, so {key} is {neutral}")


@HOOKS.register_module()
class LoadingShareHook(Hook):
    """Say once when more than half of the time goes into waiting for data.

    Args:
        iterations: Iterations to look at; the first ones, which start the processes, are left out.
        share: Share of the time from which on a hint is due.
    """

    def __init__(self, iterations: int = 100, share: float = 0.5) -> None:
        self.iterations = iterations
        self.share = share
        self._seen = 0

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None
    ) -> None:
        self._seen += 1
        if self._seen != self.iterations:
            return
        hub, window = runner.message_hub, self.iterations * 4 // 5
        if not {"train/data_time", "train/time"} <= hub.log_scalars.keys():
            return
        waiting = hub.get_scalar("train/data_time").mean(window)
        whole = hub.get_scalar("train/time").mean(window)
        if whole > 0 and waiting / whole > self.share:
            loader = runner.train_dataloader
            runner.logger.warning(
                f"{100 * waiting / whole:.0f}% of the time goes into waiting for data "
                f"(data_time {waiting:.3g} s of {whole:.3g} s). Raise "
                f"train_dataloader.num_workers (now {loader.num_workers} per process), or move "
                "the data to a faster disk."
            )
