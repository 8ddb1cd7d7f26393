"""A trained model with its reader of pictures and its class names, for pictures without labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from mmengine.model import BaseModel, revert_sync_batchnorm
from mmengine.registry import DATASETS, MODELS, init_default_scope

from .checkpoints import read_checkpoint, weights_of
from .errors import UserError, building
from .weights import WeightSources


class UnreadablePicture(Exception):
    """A file that the config's reader cannot turn into a picture; the message says why."""


class Predictor:
    """Applies a checkpoint to picture files.

    A file is read by the first step of the config's test pipeline, so a picture means here exactly
    what it means in training and in a test. For the libraries' own reader that is: three channels
    of 8 bits; grey is repeated, 16 bits keep their upper 8, transparency is dropped (the stored
    colour shows), an animation gives its first frame; with the tools' own way of reading configs
    (:mod:`relpos_mm.data.reading`) an EXIF orientation is ignored.

    Args:
        cfg: The config that the checkpoint was trained with.
        checkpoint: Path of the weights.
        device: Such as ``cpu`` or ``cuda:0``.

    Raises:
        UserError: The model cannot be built, the checkpoint does not fit the config, or no
            class names are known.
    """

    def __init__(self, cfg: Config, checkpoint: str, device: str) -> None:
        content = read_checkpoint(checkpoint)
        init_default_scope(cfg.get("default_scope", "mmengine"))
        self.meta = _dataset_meta(cfg, content)
        self.model = _build(cfg, checkpoint, content).to(device).eval()
        steps = [s for s in _dataset(cfg).pipeline if "Annotations" not in str(s["type"])]
        self._read, self._prepare = Compose(steps[:1]), Compose(steps[1:])

    def __call__(self, path: Path) -> tuple[np.ndarray, Any]:
        """Return the picture, RGB ``(H, W, 3)`` uint8, and the library's prediction for it.

        Raises:
            UnreadablePicture: The file is missing, damaged, or no picture.
        """
        try:
            read = self._read({"img_path": str(path), "img_id": 0})
        except (OSError, AssertionError) as error:
            raise UnreadablePicture(str(error)) from error
        picture = read["img"][..., ::-1].copy()
        with torch.no_grad():
            return picture, self.model.test_step(pseudo_collate([self._prepare(read)]))[0]


def _build(cfg: Config, path: str, content: dict[str, Any]) -> BaseModel:
    if cfg.get("data_preprocessor"):
        cfg.model.setdefault("data_preprocessor", cfg.data_preprocessor)
    with building("the model", cfg.filename):
        model: BaseModel = revert_sync_batchnorm(MODELS.build(cfg.model))
    WeightSources(model).add_checkpoint(path, content, whole=True)
    model.load_state_dict(weights_of(content), strict=False)
    return model


def _dataset(cfg: Config) -> Any:
    dataset = cfg.test_dataloader.dataset
    while "dataset" in dataset:
        dataset = dataset.dataset
    return dataset


def _dataset_meta(cfg: Config, content: dict[str, Any]) -> dict[str, Any]:
    """Return class names and palette: of the data set's class, the config, then the checkpoint."""
    dataset = _dataset(cfg)
    known = dict(getattr(DATASETS.get(dataset.type), "METAINFO", {}))
    known.update(dataset.get("metainfo") or {})
    known.update(content.get("meta", {}).get("dataset_meta") or {})
    meta = {key.lower(): value for key, value in known.items()}
    if not meta.get("classes"):
        raise UserError(
            f"Neither the checkpoint nor {cfg.filename} names the classes; "
            "add metainfo=dict(classes=...) to test_dataloader.dataset"
        )
    return meta
