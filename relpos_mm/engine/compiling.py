"""``torch.compile`` for the backbone of a model, off by default."""

from __future__ import annotations

from typing import Any

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
    if setting is False:
        return
    if setting is not True and not isinstance(setting, dict):
        raise UserError(
            f"{KEY} must be True, False or a dict of torch.compile's arguments, got {setting!r}"
        )
    backbone = getattr(model, "backbone", None)
    if backbone is None:
        raise UserError(f"{KEY}: {type(model).__name__} has no `backbone` to compile")
    options = {"dynamic": True, **(setting if isinstance(setting, dict) else {})}
    try:
        backbone.compile(**options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{KEY}={setting}: torch.compile refuses it: {error}") from error
    said = ", ".join(f"{name}={value!r}" for name, value in options.items())
    print_log(f"backbone: compiled in its first call ({said})", logger="current")
