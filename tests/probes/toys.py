"""A model and its test pictures, small enough to know the answers of a probe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from mmengine.model import BaseModel, ImgDataPreprocessor
from mmengine.structures import BaseDataElement
from torch import Tensor

from relpos_mm.models import RelPosSwin

from ..models.tiny import loud

RELATIVE, ABSOLUTE = {"type": "RelativeBias"}, {"type": "AbsoluteTable"}


def small(*position: dict[str, Any], **changes: Any) -> RelPosSwin:
    """Two stages of windows of 2 tokens on patches of 2 pixels: strides 2 and 4."""
    settings: dict[str, Any] = {
        "embed_dims": 8,
        "depths": (2, 2),
        "num_heads": (1, 2),
        "window_size": 2,
        "patch_size": 2,
        "pretrain_img_size": 16,
        "drop_path_rate": 0.0,
        "out_indices": (0, 1),
    }
    torch.manual_seed(0)
    return loud(RelPosSwin(position=position, **{**settings, **changes})).double().eval()


class Doubles(ImgDataPreprocessor):
    """Normalises in float64, in which a reference case can be exactly 0."""

    def forward(self, data: dict[str, Any], training: bool = False) -> Any:
        shown = super().forward(data, training)
        return {**shown, "inputs": shown["inputs"].double()}


class Toy(BaseModel):
    """Gives the channel that is largest on the mean over the picture's own tokens."""

    def __init__(self, backbone: torch.nn.Module, tells: bool = True) -> None:
        super().__init__()
        self.data_preprocessor = Doubles(mean=[99.0] * 3, std=[50.0] * 3)
        self.backbone = backbone
        self.tells = tells

    def forward(self, inputs: Tensor, data_samples: Any = None, mode: str = "tensor") -> Any:
        sizes = [sample.img_shape for sample in data_samples]
        last = self.backbone(inputs, pictures=sizes if self.tells else None)[-1]
        for sample, found in zip(data_samples, last, strict=True):
            height, width = (-(-side // 4) for side in sample.img_shape)
            sample.pred_label = found[:, :height, :width].mean((1, 2)).argmax()[None]
        return data_samples


class ToySubject:
    """Stands for :class:`relpos_mm.probes.subject.Subject`; pictures are noise of one size."""

    task, metric = "classification", "top1_pct"
    cfg = SimpleNamespace(filename="toy.py")

    def __init__(self, model: Any, size: tuple[int, int] = (16, 16)) -> None:
        self.model, self.size = model.eval(), size

    def pictures(self, count: int) -> Iterator[dict[str, Any]]:
        generator = torch.Generator().manual_seed(0)
        for _ in range(count):
            shape = (3, *self.size)
            picture = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
            sample = BaseDataElement(metainfo={"img_shape": self.size, "ori_shape": self.size})
            yield {"inputs": [picture], "data_samples": [sample]}

    def score(self, predict: Any, count: int) -> dict[str, float]:
        labels = [self.right(predict(batch)) for batch in self.pictures(count)]
        return {self.metric: 100 * sum(labels) / len(labels)}

    def right(self, samples: Sequence[Any]) -> float:
        return float(samples[0].pred_label == 0)
