"""Stop a training at its first NaN or infinity, before a bad checkpoint replaces a good one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner

from .errors import UserError
from .facts import bare_model
from .output_watch import OutputWatch


@HOOKS.register_module()
class NonFiniteLossHook(Hook):
    """Stop when a loss is NaN or infinite or a prediction is NaN; save no weights that are.

    Args:
        patience: Number of iterations in a row with a non-finite loss that stop the run. More than
            1 makes sense only with a dynamic loss scale (float16), which skips such steps.

    Raises:
        UserError: From the training loop; names the loss terms, iteration, learning rate, the
            batch's pictures and the last checkpoint. From an evaluation; names the part of the
            model and the pictures.
    """

    # After the iteration's bookkeeping, before any other hook acts on its result.
    priority = "ABOVE_NORMAL"

    def __init__(self, patience: int = 1) -> None:
        self.patience = patience
        self._in_a_row = 0
        self._watch: OutputWatch | None = None

    def after_train_iter(
        self,
        runner: Runner,
        batch_idx: int,
        data_batch: Any = None,
        outputs: Mapping[str, Any] | None = None,
    ) -> None:
        bad = {
            name: value
            for name, value in _scalars(outputs or {}).items()
            if not math.isfinite(value)
        }
        self._in_a_row = self._in_a_row + 1 if bad else 0
        if not bad or self._in_a_row < self.patience:
            return
        # The sum is bad whenever a term is; it is the answer only when it alone is.
        terms = {name: value for name, value in bad.items() if name != "loss"} or bad
        named = ", ".join(f"{name} = {value}" for name, value in terms.items())
        raise UserError(
            f"Loss is not finite at iteration {runner.iter + 1}: {named} "
            f"(lr {_learning_rate(runner):.3g}, {_pictures(data_batch)}). Training stopped; "
            f"{_last_checkpoint(runner)}. Usual causes: a learning rate for another batch size, "
            "broken annotations, float16 (use bfloat16)."
        )

    def _before_epoch(self, runner: Runner, mode: str = "train") -> None:
        if mode != "train":
            self._watch = OutputWatch(bare_model(runner.model))

    def _after_iter(
        self,
        runner: Runner,
        batch_idx: int,
        data_batch: Any = None,
        outputs: Any = None,
        mode: str = "train",
    ) -> None:
        """Check a batch of an evaluation."""
        if self._watch and (part := self._watch.first()):
            raise UserError(
                f"{part} returns NaN in the {mode} evaluation, so its score would mean nothing "
                f"({_pictures(data_batch)}); {_last_checkpoint(runner)}. Usual causes: weights "
                "that are not finite, float16 (use bfloat16)."
            )

    def _after_epoch(self, runner: Runner, mode: str = "train") -> None:
        if self._watch:
            self._watch.close()
            self._watch = None

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        state, iteration = checkpoint["state_dict"], checkpoint["meta"]["iter"]
        bad = [
            name
            for name, tensor in state.items()
            if torch.is_floating_point(tensor) and not torch.isfinite(tensor).all()
        ]
        if bad:
            raise UserError(
                f"Weights are not finite after iteration {iteration}: {len(bad)} of "
                f"{len(state)} tensors, first {bad[0]}. Nothing was saved; "
                f"{_last_checkpoint(runner)}."
            )


def _scalars(outputs: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(value.detach() if torch.is_tensor(value) else value)
        for name, value in outputs.items()
        if isinstance(value, (int, float)) or (torch.is_tensor(value) and value.numel() == 1)
    }


def _learning_rate(runner: Runner) -> float:
    return runner.optim_wrapper.get_lr()["lr"][0]


def _last_checkpoint(runner: Runner) -> str:
    # This note is written after a save has succeeded; the message hub's entry before.
    note = Path(runner.work_dir) / "last_checkpoint"
    if not note.is_file():
        return "no checkpoint was saved before it"
    return f"the last good checkpoint is {note.read_text().strip()}"


def _pictures(batch: Any, limit: int = 8) -> str:
    paths = list(dict.fromkeys(_paths(batch)))
    if not paths:
        return "pictures unknown"
    more = f" and {len(paths) - limit} more" if len(paths) > limit else ""
    return "pictures: " + ", ".join(paths[:limit]) + more


def _paths(node: Any) -> Iterator[str]:
    """Yield the picture paths of a batch, whatever containers the libraries put them into."""
    if hasattr(node, "metainfo"):
        path = node.metainfo.get("img_path")
        if path:
            yield str(path)
    elif isinstance(node, Mapping):
        for value in node.values():
            yield from _paths(value)
    elif isinstance(node, Sequence) and not isinstance(node, (str, bytes)):
        for value in node:
            yield from _paths(value)
