"""The block that every run logs before its first iteration."""

from __future__ import annotations

import math
from typing import Any

from mmengine.hooks import Hook
from mmengine.optim import OptimWrapper
from mmengine.registry import HOOKS
from mmengine.runner import Runner

from .errors import UserError
from .facts import (
    bare_model,
    batch_fact,
    cpu_gemm_fact,
    data_fact,
    encoding_fact,
    highest_rate,
    optimiser_fact,
    parameter_fact,
)
from .report import report_lines
from .resuming import kept_settings, run_settings
from .weights import WeightSources


@HOOKS.register_module()
class StartReportHook(Hook):
    """Log data, batch, learning rate, frozen part, weights and encoding; refuse useless weights.

    Args:
        allow_position_mismatch: Go on although the encodings of a weight file and of the config
            differ; the tensors concerned then start at random values, and the report says so.

    Attributes:
        facts: What was logged, as plain values (None before the start).
        trained_seed: Seed of the training that wrote the loaded checkpoint, if it says so.

    Raises:
        UserError: A weight file fills no backbone tensor or has another encoding, a tested or
            resumed file leaves tensors at random values, or a data set is empty.
    """

    priority = "VERY_HIGH"

    def __init__(self, allow_position_mismatch: bool = False) -> None:
        self.allow_position_mismatch = allow_position_mismatch
        self.facts: dict[str, Any] | None = None
        self.trained_seed: int | None = None
        self._sources: WeightSources | None = None
        self._config_lr: float | None = None

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        training = isinstance(runner.optim_wrapper, OptimWrapper)  # a dict until train() builds it
        path = str(runner._load_from or "the last checkpoint")
        whole = not training or runner._resume
        self._weights(runner).add_checkpoint(path, checkpoint, whole)
        self.trained_seed = checkpoint.get("meta", {}).get("seed")
        if training and runner._resume and "optimizer" in checkpoint:
            self._config_lr = highest_rate(runner.optim_wrapper.param_groups)

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        checkpoint["meta"]["run"] = run_settings(runner.cfg, runner.world_size)
        checkpoint["meta"]["kept"] = kept_settings(runner.cfg)
        if (route := cpu_gemm_fact(runner)) is not None:
            checkpoint["meta"]["cpu_gemm"] = route["name"]
        if (transferred := self._weights(runner).position_transferred) is not None:
            checkpoint["meta"]["position_transferred"] = transferred

    def before_train(self, runner: Runner) -> None:
        sources = self._weights(runner)
        if not runner._resume:
            sources.add_init_cfgs(verify=runner._load_from is None)
        loaders = {"train": runner.train_dataloader}
        if runner.val_loop is not None:
            loaders["val"] = runner.val_dataloader
        self._report(runner, loaders)
        used = highest_rate(runner.optim_wrapper.param_groups)
        if self._config_lr is not None and not math.isclose(self._config_lr, used, rel_tol=1e-6):
            runner.logger.warning(
                f"resume: the config's lr {self._config_lr:g} is NOT used; training goes on with "
                f"{used:g} of the checkpoint. --resume-changed would apply the config's."
            )

    def before_test(self, runner: Runner) -> None:
        self._report(runner, {"test": runner.test_dataloader})

    def _weights(self, runner: Runner) -> WeightSources:
        if self._sources is None:
            model = bare_model(runner.model)
            self._sources = WeightSources(model, self.allow_position_mismatch)
        return self._sources

    def _report(self, runner: Runner, loaders: dict[str, Any]) -> None:
        model = bare_model(runner.model)
        data = {split: data_fact(loader) for split, loader in loaders.items()}
        for split, fact in data.items():
            if not fact["pictures"]:
                raise UserError(
                    f"The {split} data set is empty: {fact['type']} from {fact['from']}"
                )
        training = "train" in loaders
        self.facts = {
            "data": data,
            "batch": batch_fact(runner) if training else None,
            "optimiser": optimiser_fact(runner) if training else None,
            "parameters": parameter_fact(model),
            "weights": self._weights(runner).by_part(),
            "weight_notes": self._weights(runner).notes,
            "encoding": encoding_fact(model),
            "position_transferred": self._weights(runner).position_transferred,
            "cpu_gemm": cpu_gemm_fact(runner),
            "seed": runner.seed,
        }
        runner.logger.info("\n".join(["Start of the run", *report_lines(self.facts)]))
        if training:
            _warn_about_batch(runner, self.facts["batch"])


def _warn_about_batch(runner: Runner, batch: dict[str, Any]) -> None:
    """Warn when rate and batch do not belong together; scaling leaves accumulation out."""
    accumulation = batch["accumulation"]
    if batch["lr_scaled"]:
        if accumulation > 1:
            runner.logger.warning(
                f"--auto-scale-lr counts processes x batch, not the accumulation of {accumulation};"
                " multiply the learning rate yourself."
            )
    elif batch["recipe"] and batch["effective"] != batch["recipe"]:
        factor = batch["effective"] / accumulation / batch["recipe"]
        runner.logger.warning(
            f"The learning rate belongs to a batch of {batch['recipe']}, this run has "
            f"{batch['effective']}. --auto-scale-lr would multiply it by {factor:g}."
        )
