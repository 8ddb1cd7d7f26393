"""Checks that need the model: class counts, parameter counts and optimiser groups.

Models are built on torch's meta device: shapes and names without memory or initial values, so a
Cascade Mask R-CNN takes a second.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, DefaultScope
from torch import nn

from relpos_mm.encodings import position_modules

from .pipelines import dataset_class, innermost_dataset
from .problem import Problem


def build_on_meta(config: Config) -> nn.Module:
    """Build the model of ``config`` without memory, in the scope of its own library."""
    cfg = deepcopy(config.model)  # DETR's head writes a tensor into its own
    if config.get("data_preprocessor") is not None:
        cfg.setdefault("data_preprocessor", config.data_preprocessor)  # as the runner does
    with DefaultScope.overwrite_default_scope(config.get("default_scope")), torch.device("meta"):
        return MODELS.build(cfg)


def check_model(path: Path, config: Config) -> list[Problem]:
    """Build the model and check everything that can be read off it."""
    with _quiet():
        try:
            model = build_on_meta(config)
        except Exception as error:  # whatever a constructor raises, the config is what is wrong
            reason = f"the model cannot be built: {error}"
            return [Problem(path, "model", config.model.type, reason, "Correct the named argument")]
        return [
            *check_classes(path, config, model),
            *_check_counts(path, config, model),
            *_check_decay(path, config, model),
        ]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what the libraries log and warn while they build."""
    logger = MMLogger.get_current_instance()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def class_names(config: Config) -> tuple[str, ...] | None:
    """Return the class names of the training data, or None when only the files know them."""
    loader = config.get("train_dataloader")
    if not loader:
        return None
    dataset = innermost_dataset(loader["dataset"])
    names = dict(dataset.get("metainfo") or {}).get("classes", dataset.get("classes"))
    if names is None:
        names = getattr(dataset_class(config, dataset), "METAINFO", {}).get("classes")
    return None if names is None else tuple(names)


def check_classes(path: Path, config: Config, model: nn.Module) -> Iterator[Problem]:
    """Refuse heads whose class count is not that of the training data, by their config keys."""
    counts = {
        _config_path(config, name): module.num_classes
        for name, module in model.named_modules()
        # A region proposal head tells object from background, whatever the data set.
        if isinstance(getattr(module, "num_classes", None), int) and name != "rpn_head"
    }
    names = class_names(config)
    expected = len(names) if names is not None else max(counts.values(), default=0)
    source = "the class names of the data set" if names is not None else "the other heads"
    for key, value in counts.items():
        if value != expected:
            reason = f"{source} make {expected}"
            yield Problem(path, key, value, reason, f"Set it to {expected} in every head")


def _config_path(config: Config, module_name: str) -> str:
    """Return the dotted config key of a module's ``num_classes``.

    A head written once and repeated per stage by the model has an index in its module name only.
    """
    node: Any = config.model
    keys = ["model"]
    for part in module_name.split("."):
        if isinstance(node, list) and part.isdigit():
            node = node[int(part)]
        elif isinstance(node, dict) and part in node:
            node = node[part]
        else:
            continue
        keys.append(part)
    return ".".join([*keys, "num_classes"])


def _check_counts(path: Path, config: Config, model: nn.Module) -> Iterator[Problem]:
    stated = config.get("params_without_position")
    if stated is None:
        return
    position = {p for module in position_modules(model).values() for p in module.parameters()}
    rest = sum(p.numel() for p in model.parameters() if p not in position)
    if rest != stated:
        reason = f"the model has {rest} parameters beside its position encoding"
        remedy = "Undo the change of the network, or state the new count in the task's base"
        yield Problem(path, "params_without_position", stated, reason, remedy)


def _check_decay(path: Path, config: Config, model: nn.Module) -> Iterator[Problem]:
    if config.get("optim_wrapper") is None:  # a config for tests alone
        return
    cfg = config.optim_wrapper.copy()
    try:
        with DefaultScope.overwrite_default_scope(config.get("default_scope")):
            optimizer = build_optim_wrapper(model, cfg).optimizer
    except Exception as error:  # as above
        reason = f"the optimiser cannot be built: {error}"
        yield Problem(path, "optim_wrapper", config.optim_wrapper, reason, "Correct the named rule")
        return
    decay = {p: group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    for name, module in position_modules(model).items():
        for own in module.no_decay():
            value = decay.get(module.get_parameter(own), 0.0)
            if value != 0.0:
                yield Problem(
                    path,
                    "optim_wrapper.constructor",
                    cfg.get("constructor", "DefaultOptimWrapperConstructor"),
                    f"{name}.{own} gets weight decay {value}, but its encoding declares none",
                    "Use constructor='PositionOptimConstructor'",
                )
