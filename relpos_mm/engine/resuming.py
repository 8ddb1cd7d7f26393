"""What must be equal when a training goes on, and what a broken-off run still owes."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.device import get_device
from mmengine.dist import broadcast_object_list, is_main_process
from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.registry import HOOKS
from mmengine.runner import EpochBasedTrainLoop, Runner

from .cpu_gemm import AUTO, DEFAULT
from .errors import UserError
from .saving import write_atomically

# Number of processes, as the launchers tell it before the processes have met.
_PROCESSES = {"pytorch": "WORLD_SIZE", "slurm": "SLURM_NTASKS", "mpi": "OMPI_COMM_WORLD_SIZE"}
_NAMES = {
    "batch_size": "train_dataloader.batch_size",
    "processes": "number of processes",
    "accumulation": "optim_wrapper.accumulative_counts",
    "lr": "optim_wrapper.optimizer.lr (scaled)",
}


def run_settings(cfg: Config, processes: int | None = None) -> dict[str, Any]:
    """Return what decides the meaning of an iteration: batch, processes, accumulation and rate.

    Args:
        cfg: The resolved config.
        processes: Their number; read from the launcher's environment by default.
    """
    if processes is None:
        variable = _PROCESSES.get(cfg.get("launcher", "none"), "")
        processes = int(os.environ.get(variable, "1"))
    loader, wrapper = cfg.get("train_dataloader") or {}, cfg.get("optim_wrapper") or {}
    batch = loader.get("batch_size") or (loader.get("batch_sampler") or {}).get("batch_size") or 1
    rate = (wrapper.get("optimizer") or {}).get("lr")
    scale = cfg.get("auto_scale_lr") or {}
    if rate is not None and scale.get("enable") and scale.get("base_batch_size"):
        rate *= batch * processes / scale["base_batch_size"]
    return {
        "batch_size": batch,
        "processes": processes,
        "accumulation": wrapper.get("accumulative_counts", 1),
        "lr": rate,
    }


def kept_settings(cfg: Config) -> dict[str, str]:
    """Return what a resumed run takes from its checkpoint, whatever its config says, as json."""
    optimizer = dict((cfg.get("optim_wrapper") or {}).get("optimizer") or {})
    optimizer.pop("lr", None)  # compared by value, see :func:`run_settings`
    parts = {"optim_wrapper.optimizer": optimizer, "param_scheduler": cfg.get("param_scheduler")}
    return {name: json.dumps(part, sort_keys=True, default=str) for name, part in parts.items()}


def continue_as_before(cfg: Config, path: str, meta: dict[str, Any], allowed: bool) -> float | None:
    """Compare a run with the checkpoint that it goes on from; give it the checkpoint's seed.

    Args:
        cfg: The resolved config; a missing seed is set.
        path: The checkpoint, for messages.
        meta: Its ``meta``.
        allowed: Whether changes are wanted (``--resume-changed``).

    Returns:
        The factor by which the checkpoint's learning rates must be multiplied; None when nothing
        changed.

    Raises:
        UserError: Seed, batch, processes, rate or ``cpu_gemm`` differ.
    """
    seed = meta.get("seed")
    if seed is not None:
        given = (cfg.get("randomness") or {}).get("seed")
        if given is not None and given != seed:
            raise UserError(
                f"--resume: {path} was trained with randomness.seed={seed}, the config says "
                f"{given}. A run keeps its seed; set {seed}, or start anew in another --work-dir."
            )
        cfg.merge_from_dict({"randomness.seed": seed})
    for name, setting in kept_settings(cfg).items():
        if (was := meta.get("kept", {}).get(name, setting)) != setting:
            print_log(
                f"--resume: {name} is {setting} in the config, {was} in {path}; a resumed "
                "run goes on with the checkpoint's. A new one would start with --cfg-options "
                f"load_from={path}",
                logger="current",
                level=logging.WARNING,
            )
    _keep_route(cfg, path, meta, allowed)
    new = run_settings(cfg)
    old: dict[str, Any] = meta.get("run") or new  # other programs write no such entry
    changed = [key for key in new if old.get(key) != new[key]]
    if not changed:
        return None
    told = ", ".join(f"{_NAMES[key]} {old[key]} -> {new[key]}" for key in changed)
    same_step = old["batch_size"] * old["processes"] == new["batch_size"] * new["processes"]
    if cfg.train_cfg.get("by_epoch", "Epoch" in cfg.train_cfg.get("type", "")) and not same_step:
        raise UserError(
            f"--resume: {path} was trained with other settings: {told}. An epoch would have "
            "another number of iterations, and the schedule of the checkpoint counts those. "
            "Restore the settings, or start a new training from these weights: "
            f"--cfg-options load_from={path}"
        )
    factor = new["lr"] / old["lr"] if new["lr"] and old.get("lr") else 1.0
    if not allowed:
        raise UserError(
            f"--resume: {path} was trained with other settings: {told}. Restore them, or add "
            "--resume-changed to go on with the new ones: the checkpoint's learning rates would "
            f"be multiplied by {factor:g}. With --auto-scale-lr that is the rate that belongs to "
            "the batch."
        )
    return factor


def _keep_route(cfg: Config, path: str, meta: dict[str, Any], allowed: bool) -> None:
    """Let float32 products go the checkpoint's way, without which sums round in another order.

    Raises:
        UserError: Another way is asked for.
    """
    was = meta.get("cpu_gemm", DEFAULT)  # None: on a GPU
    wish = cfg.get("cpu_gemm", AUTO)
    if was in (None, wish) or get_device() != "cpu":
        return
    if wish == AUTO:
        cfg.cpu_gemm = was
        return
    said = (
        f"--resume: {path} was trained with cpu_gemm={was!r}, now it is {wish!r}: losses would not "
        "be those of an unbroken run bit by bit"
    )
    if not allowed:
        raise UserError(f"{said}. Set it to {was!r} or 'auto', or add --resume-changed.")
    print_log(said, logger="current", level=logging.WARNING)


@HOOKS.register_module()
class ResumedRateHook(Hook):
    """Multiply the learning rates of a resumed run, those of its schedule included.

    Args:
        factor: New rate / rate of the checkpoint.
    """

    priority = "HIGHEST"

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def before_train(self, runner: Runner) -> None:
        for group in runner.optim_wrapper.param_groups:
            for key in {"lr", "initial_lr"} & group.keys():
                group[key] *= self.factor
        for scheduler in runner.param_schedulers or []:
            if scheduler.param_name == "lr":
                scheduler.base_values = [self.factor * v for v in scheduler.base_values]
                scheduler._last_value = [self.factor * v for v in scheduler._last_value]
        runner.logger.warning(
            f"resume: settings were changed on purpose; learning rates times {self.factor:g}. "
            "The order of samples is another one from here on."
        )


@HOOKS.register_module()
class OwedValidationHook(Hook):
    """Validate first when a run was killed between saving a checkpoint and validating it.

    Without this the best score could pass by. ``last_validation`` in the run directory tells
    which iteration or epoch was validated last, with everything that follows from it saved.
    """

    priority = "LOWEST"
    filename = "last_validation"

    def before_train(self, runner: Runner) -> None:
        note = Path(runner.work_dir) / self.filename
        if not runner._resume:
            if is_main_process():
                note.unlink(missing_ok=True)
            return
        places = [note]
        if runner._load_from:
            places.append(Path(runner._load_from).parent / self.filename)
        done = max((json.loads(p.read_text())["step"] for p in places if p.is_file()), default=0)
        step = _step(runner)
        owed = [runner.val_loop is not None and done < step and _is_due(runner, step)]
        broadcast_object_list(owed)  # other machines may not see the first one's folder
        if owed[0]:
            runner.logger.info(f"The run was broken off before step {step} was validated: now")
            runner.val_loop.run()

    def after_val_epoch(self, runner: Runner, metrics: dict[str, Any] | None = None) -> None:
        if is_main_process() and runner._train_loop is not None:
            content = json.dumps({"step": _step(runner)}).encode()
            write_atomically(Path(runner.work_dir) / self.filename, content)


def _step(runner: Runner) -> int:
    return runner.epoch if isinstance(runner.train_loop, EpochBasedTrainLoop) else runner.iter


def _is_due(runner: Runner, step: int) -> bool:
    """Repeat the loops' own rule."""
    loop = runner.train_loop
    loop._decide_current_val_interval()
    last = loop.max_epochs if isinstance(loop, EpochBasedTrainLoop) else loop.max_iters
    return step >= max(loop.val_begin, 1) and (step % loop.val_interval == 0 or step == last)
