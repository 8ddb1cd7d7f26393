"""``torch.compile`` for the backbone of a model, off by default."""

from __future__ import annotations

from typing import Any

import torch
from mmengine.logging import print_log
from torch import nn

from .errors import UserError

KEY = "compile_backbone"


def compile_backbone(model: nn.Module, setting: bool | dict[str, Any]) -> None:
    """Compile ``model.backbone`` in place, for inputs of any size; its state dict stays as it is.

    Nothing is compiled before the first call, which then takes a minute or more.

    Args:
        model: A detector, segmentor or classifier.
        setting: False for nothing, True, or arguments of ``torch.compile`` to use instead of
            ``dynamic=True``.

    Raises:
        UserError: The setting is neither, torch refuses it, or the model has no backbone.
    """
    options = compile_options(setting)
    if options is None:
        return
    backbone = getattr(model, "backbone", None)
    if backbone is None:
        raise UserError(f"{KEY}: {type(model).__name__} has no `backbone` to compile")
    backbone.compile(**options)
    said = ", ".join(f"{name}={value!r}" for name, value in options.items())
    print_log(f"backbone: compiled in its first call ({said})", logger="current")


def compile_options(setting: bool | dict[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of ``torch.compile`` that a setting means; None for no compiling.

    Raises:
        UserError: It is neither True, False nor a dict, or torch refuses it.
    """
    if setting is False:
        return None
    if setting is not True and not isinstance(setting, dict):
        raise UserError(
            f"{KEY} must be True, False or a dict of torch.compile's arguments, got {setting!r}"
        )
    options = {"dynamic": True, **(setting if isinstance(setting, dict) else {})}
    try:
        torch.compile(nn.Identity().forward, **options)  # compiles nothing before it is called
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{KEY}={setting}: torch.compile refuses it: {error}") from error
    return options
