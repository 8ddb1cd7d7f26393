"""Pictures enlarged and put on larger canvases before a model, and what the model then says.

All of it happens behind the config's own pipeline and normalisation, where libraries pad: empty
canvas is zero, the mean colour. Predictions come back in the coordinates of the picture itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.model import BaseModel
from torch import Tensor

from relpos_mm.encodings.grid import Size
from relpos_mm.engine.errors import UserError
from relpos_mm.models import RelPosSwin

from .subject import Subject


@dataclass(frozen=True)
class Placing:
    """How a picture stands before a model.

    Attributes:
        enlarge: Factors ``(rows, columns)`` on the picture itself; bilinear, with antialiasing.
        canvas: Size of the canvas in pixels; the picture's own when not given.
        at: Place of the picture's top left corner.
        padding: The rest of the canvas is padding, as a larger batch mate causes it, and the model
            is told the picture's size. Otherwise the canvas is the picture.
    """

    enlarge: tuple[float, float] = (1.0, 1.0)
    canvas: Size | None = None
    at: Size = (0, 0)
    padding: bool = False


#: Placing of a picture of a size ``(h, w)``.
PlacingOf = Callable[[Size], Placing]


def swin_of(subject: Subject) -> RelPosSwin:
    """Return the backbone whose stages are looked at.

    Raises:
        UserError: The model has another one.
    """
    backbone = getattr(subject.model, "backbone", None)
    if not isinstance(backbone, RelPosSwin):
        raise UserError(
            f"{subject.cfg.filename}: this probe reads the stages of a RelPosSwin; the model has "
            f"{type(backbone).__name__}. Give the config of a Cascade Mask R-CNN, an UperNet or a "
            "Swin classifier of this project."
        )
    return backbone


def strides(backbone: RelPosSwin) -> list[int]:
    """Return pixels per token of every stage."""
    return [backbone.patch_size * 2**stage for stage in range(len(backbone.stages))]


@contextmanager
def stage_outputs(backbone: RelPosSwin) -> Iterator[list[Tensor]]:
    """Collect what every stage gives, before merging, during the calls of the block.

    Yields:
        The list that fills: ``(B, C, H, W)`` per stage and call.
    """
    found: list[Tensor] = []
    hooks = [
        stage.register_forward_hook(lambda *call: found.append(call[2].permute(0, 3, 1, 2)))
        for stage in backbone.stages
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def picture_of(model: BaseModel, batch: dict[str, Any]) -> tuple[Tensor, Any]:
    """Return the normalised picture ``(1, 3, h, w)`` without any padding, and its sample."""
    shown = model.data_preprocessor(batch, False)
    sample = shown["data_samples"][0]
    height, width = sample.img_shape[:2]
    return shown["inputs"][:, :, :height, :width], sample


def place(picture: Tensor, placing: Placing, divisor: int = 1) -> Tensor:
    """Return the canvas with the picture on it, its sides rounded up to multiples of ``divisor``.

    Raises:
        ValueError: The picture reaches outside the canvas.
    """
    picture = enlarged(picture, placing.enlarge)
    (top, left), (height, width) = placing.at, picture.shape[2:]
    rows, columns = placing.canvas or (height, width)
    if top + height > rows or left + width > columns:
        raise ValueError(f"{height} x {width} px at {placing.at} on {rows} x {columns} px")
    bottom, right = -(-rows // divisor) * divisor, -(-columns // divisor) * divisor
    return F.pad(picture, (left, right - left - width, top, bottom - top - height))


def enlarged(picture: Tensor, factors: tuple[float, float]) -> Tensor:
    """Resize a picture ``(1, 3, h, w)``; factors of 1 leave it as it is."""
    if factors == (1.0, 1.0):
        return picture
    size = [max(1, round(s * f)) for s, f in zip(picture.shape[2:], factors, strict=True)]
    return F.interpolate(picture, size=size, mode="bilinear", antialias=True)


@torch.no_grad()
def predict(model: BaseModel, batch: dict[str, Any], placing_of: PlacingOf) -> Any:
    """Predict on a placed picture; boxes, masks and label maps are those of the picture itself."""
    picture, sample = picture_of(model, batch)
    size = (picture.shape[2], picture.shape[3])
    placing = placing_of(size)
    divisor = getattr(model.data_preprocessor, "pad_size_divisor", 1)
    canvas = place(picture, placing, divisor)
    shown = tuple(canvas.shape[2:])
    inner = tuple(enlarged(picture[:, :1], placing.enlarge).shape[2:])
    real = inner if placing.padding else placing.canvas or inner
    stored = tuple(sample.metainfo.get("ori_shape", size)[:2])
    scale = [i / o for i, o in zip(inner, stored, strict=True)]
    result = (
        stored if placing.padding else tuple(round(r / s) for r, s in zip(real, scale, strict=True))
    )
    placed = sample.clone()
    placed.set_metainfo(
        {
            "img_shape": real,
            "ori_shape": result,
            "scale_factor": (scale[1], scale[0]),
            "pad_shape": shown,
            "batch_input_shape": shown,
            "padding_size": [0, shown[1] - real[1], 0, shown[0] - real[0]],
        }
    )
    (found,) = model(canvas, [placed], mode="predict")
    top, left = (round(a / s) for a, s in zip(placing.at, scale, strict=True))
    _cut(found, (top, left), stored)
    found.set_metainfo({"ori_shape": stored, "img_shape": size})
    return found


def _cut(found: Any, at: Size, size: Size) -> None:
    """Cut a prediction down to the picture that stands at ``at``."""
    (top, left), (height, width) = at, size
    if "pred_instances" in found:
        objects = found.pred_instances
        boxes = objects.bboxes - objects.bboxes.new_tensor([left, top, left, top])
        limits = boxes.new_tensor([width, height, width, height])
        objects.bboxes = torch.minimum(boxes.clamp(min=0), limits)
        if "masks" in objects:
            objects.masks = _window(objects.masks, at, size)
    if "pred_sem_seg" in found:
        labels = _window(found.pred_sem_seg.data, at, size)
        # Data of another size than the sample's other maps, which are no longer needed.
        found.pred_sem_seg = type(found.pred_sem_seg)(data=labels)


def _window(maps: Tensor, at: Size, size: Size) -> Tensor:
    """Cut ``(n, H, W)``; a pixel lost by rounding is filled with what stands beside it."""
    rows = torch.arange(at[0], at[0] + size[0], device=maps.device).clamp(max=maps.shape[1] - 1)
    columns = torch.arange(at[1], at[1] + size[1], device=maps.device).clamp(max=maps.shape[2] - 1)
    return maps[:, rows][:, :, columns]


def change(one: Tensor, other: Tensor) -> float:
    """Relative root-mean-square change of a map: 0 is none, 1 as large as the map itself."""
    difference = (other - one).double().square().mean()
    return float((difference / one.double().square().mean()).sqrt())
