"""A small DETR of the mini configs, and data samples for it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from mmdet.structures import DetDataSample
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope

import relpos_mm.models.detr  # noqa: F401  registers the detector
from relpos_mm.models import RelPosDetrEncoder

MINI = Path(__file__).parents[2] / "configs" / "mini"
SINES = {"type": "Sinusoid2d", "form": "detr", "site": "qk_input"}
IRPE = {"type": "ContextualRpe", "ratio": 2.0}


def config_of(slug: str) -> Any:
    """The model of a mini config."""
    return deepcopy(Config.fromfile(MINI / f"detr_r50_{slug}.py").model)


def build(config: Any) -> Any:
    with DefaultScope.overwrite_default_scope("mmdet"):
        return MODELS.build(config)


def encoder(position: Sequence[dict[str, Any]], **options: Any) -> RelPosDetrEncoder:
    """Two layers of 24 channels in float64 and evaluation mode."""
    sizes = {"num_layers": 2, "embed_dims": 24, "num_heads": 3, "feedforward_channels": 32}
    made = RelPosDetrEncoder(**{**sizes, "position": position, **options})
    return made.double().eval()


def samples(canvas: tuple[int, int], *sizes: tuple[int, int]) -> list[DetDataSample]:
    """One data sample per picture of a batch that is padded to ``canvas``."""
    made = []
    for size in sizes:
        sample = DetDataSample()
        sample.set_metainfo({"batch_input_shape": canvas, "img_shape": size})
        made.append(sample)
    return made
