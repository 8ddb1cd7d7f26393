"""The backbone that a config describes, built alone and on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.registry import MODELS

from relpos_mm.models import RelPosSwin
from relpos_mm.transfer.errors import TransferError


@dataclass
class Target:
    """What a transfer writes for.

    Attributes:
        name: the config file.
        backbone: the built backbone.
        config: its entries in the config.
        prefix: what stands before its keys in the whole model.
        classifier: whether the model is a classifier (else a dense model or a bare backbone).
        num_classes: classes of a classifier's head.
    """

    name: str
    backbone: RelPosSwin
    config: dict[str, Any]
    prefix: str = "backbone."
    classifier: bool = False
    num_classes: int | None = None


def load_config(path: str | Path) -> Config:
    """Read a config file that has a ``model``.

    Raises:
        TransferError: the file is missing, no config, or without a model.
    """
    import relpos_mm.engine  # noqa: F401  lets mmengine find mmseg's base configs

    if not Path(path).is_file():
        raise TransferError(f"{path}: no such config file")
    try:
        config = Config.fromfile(path)
    except Exception as error:  # a config is code: anything can go wrong in it
        raise TransferError(f"{path}: not a readable config ({error})") from error
    if not isinstance(config.get("model"), dict):
        raise TransferError(f"{path}: it has no model = dict(...), so nothing can be fitted to it")
    return config


def build_target(model: Mapping[str, Any], name: str) -> Target:
    """Build the backbone of a ``model`` dict.

    Raises:
        TransferError: there is no RelPosSwin in it, or it cannot be built.
    """
    whole = model.get("type") != "RelPosSwin"
    config = dict((model.get("backbone") or {}) if whole else model)
    if config.get("type") != "RelPosSwin":
        raise TransferError(
            f"{name}: model.backbone is {config.get('type')!r}, but weights can be brought to "
            "RelPosSwin, RelPosViT and RelPosDETR; give a config of this project (cls_*, "
            "cascade_*, upernet_*, detr_*)"
        )
    config["init_cfg"] = None  # values come from the file, not from another file's name
    try:
        backbone = MODELS.build(config)
    except Exception as error:
        raise TransferError(f"{name}: model.backbone cannot be built ({error})") from error
    head = model.get("head") or {}
    classifier = str(model.get("type")).split(".")[-1] == "ImageClassifier"
    return Target(
        name=name,
        backbone=backbone,
        config=config,
        prefix="backbone." if whole else "",
        classifier=classifier or (not whole and backbone.small_map == "shrink"),
        num_classes=head.get("num_classes") if classifier else None,
    )
