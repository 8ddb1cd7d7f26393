"""Numbers of a run with which a training would stop late, or do nothing or harm without a word."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from numbers import Integral, Real
from typing import Any

from mmengine.config import Config

from .errors import UserError


def _whole(lowest: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, Integral) and int(value) >= lowest


def _positive(value: Any) -> bool:
    return isinstance(value, Real) and isfinite(value) and float(value) > 0


_FROM_1 = (_whole(1), "a whole number of at least 1")
_WANTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "train_cfg.max_iters": _FROM_1,
    "train_cfg.max_epochs": _FROM_1,
    "train_cfg.val_interval": _FROM_1,
    "train_dataloader.batch_size": _FROM_1,
    "optim_wrapper.accumulative_counts": _FROM_1,
    # below 0 the gradient would be turned round
    "optim_wrapper.clip_grad.max_norm": (_positive, "a number above 0"),
    "auto_scale_lr.base_batch_size": _FROM_1,
    "default_hooks.logger.interval": _FROM_1,
    "default_hooks.checkpoint.interval": (
        lambda value: isinstance(value, Integral) and value != 0,
        "a whole number, -1 for never",
    ),
    "randomness.seed": (_whole(0), "a whole number of at least 0"),
    "load_from": (lambda value: isinstance(value, str), "the name of a file"),
}


def check_numbers(cfg: Config) -> None:
    """Refuse settings that no run can have; what a config leaves out or sets to None is fine.

    Raises:
        UserError: Names the config, the setting, its value and what it must be.
    """
    for path, (fits, what) in _WANTED.items():
        node: Any = cfg
        for name in path.split("."):
            node = node.get(name) if isinstance(node, (Mapping, Config)) else None
        if node is not None and not fits(node):
            raise UserError(f"{cfg.filename}: {path} must be {what}, got {node!r}")
