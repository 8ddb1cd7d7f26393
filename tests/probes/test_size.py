"""Sizes: labels that follow content survive every canvas, those that follow the place do not."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from mmengine.structures import PixelData
from torch import Tensor

from relpos_mm.probes.placing import Placing, place, predict
from relpos_mm.probes.size import SizeProbe, _factor, area, aspect, centred, relative_to_one

from .toys import Toy, ToySubject

SETTINGS = {"factors": [0.5, 1.0, 2.0], "aspects": [0.5, 1.0, 2.0], "pictures": 2}


class Labels(Toy):
    """Labels a pixel by its own value, or by the half of the canvas that it lies in."""

    def __init__(self, by_place: bool) -> None:
        super().__init__(torch.nn.Identity())
        self.by_place = by_place

    def forward(self, inputs: Tensor, data_samples: Any = None, mode: str = "tensor") -> Any:
        for sample, picture in zip(data_samples, inputs, strict=True):
            labels = (picture[:1] > 0).long()
            if self.by_place:
                labels = (torch.arange(picture.shape[2]) >= picture.shape[2] / 2).long()
                labels = labels.expand(1, *picture.shape[1:])
            # As libraries do: the answer has the size that the sample calls the original one.
            size = sample.ori_shape
            resized = torch.nn.functional.interpolate(labels[None].float(), size).long()[0]
            sample.pred_sem_seg = PixelData(data=resized)
        return data_samples


class LabelSubject(ToySubject):
    """A bright left and a dark right half, or the other way round; the truth is one of both."""

    task, metric = "segmentation", "miou_pct"

    def pictures(self, count: int) -> Any:
        for batch in super().pictures(count):
            picture = torch.zeros(3, *self.size, dtype=torch.uint8)
            picture[:, :, : self.size[1] // 2] = 255
            yield {**batch, "inputs": [picture]}

    def right(self, samples: Sequence[Any]) -> float:
        found = samples[0].pred_sem_seg.data
        assert found.shape == (1, *self.size)
        left = torch.arange(self.size[1]) < self.size[1] // 2
        truth = ~left if self.model.by_place else left
        return float((found == truth.long()).float().mean())


def curves(by_place: bool) -> dict[str, dict[float, float]]:
    subject: Any = LabelSubject(Labels(by_place))
    found = SizeProbe().measure(subject, SETTINGS)
    return {
        c.panel: {x: round(y, 6) for x, y in zip(c.x, c.y, strict=True)}  # type: ignore[arg-type, misc]
        for c in found.curves
    }


def test_labels_by_content_survive_every_size_and_canvas() -> None:
    found = curves(by_place=False)
    odd_widths = found.pop("aspect")
    assert odd_widths.keys() == {0.5, 1, 2}
    assert min(odd_widths.values()) > 90, "the edge may move by a pixel of 16"
    assert found == {
        "objects and canvas": {0.5: 100, 1: 100, 2: 100},
        "canvas": {1: 100, 2: 100},
        "objects": {1: 100, 2: 100},
    }


def test_labels_by_place_follow_the_canvas() -> None:
    """The picture stays in the middle, so halves of the canvas are its halves."""
    assert curves(by_place=True)["canvas"] == {1: 100, 2: 100}
    model, size = Labels(by_place=True), (16, 16)
    (batch,) = LabelSubject(model).pictures(1)
    off = predict(model, batch, lambda s: Placing(canvas=(32, 32), at=(0, 4)))
    assert off.pred_sem_seg.data[0, 0].tolist() == [0] * 12 + [1] * 4
    assert off.img_shape == off.ori_shape == size


def test_boxes_and_masks_come_back_in_the_pictures_own_coordinates() -> None:
    class Boxes(Toy):
        """Finds one object, the lit part of the canvas, in the sample's original coordinates."""

        def forward(self, inputs: Tensor, data_samples: Any = None, mode: str = "tensor") -> Any:
            from mmengine.structures import InstanceData

            (sample,) = data_samples
            lit = (inputs[0, 0] > 0.5).nonzero()
            low, high = lit.amin(0), lit.amax(0) + 1
            scale = torch.tensor(sample.scale_factor)
            box = torch.cat((low.flip(0) / scale, high.flip(0) / scale))
            masks = torch.zeros(1, *sample.ori_shape, dtype=torch.bool)
            top, left, bottom, right = (int(v) for v in box[[1, 0, 3, 2]].round())
            masks[:, top:bottom, left:right] = True
            sample.pred_instances = InstanceData(bboxes=box[None], masks=masks)
            return data_samples

    model = Boxes(torch.nn.Identity())
    subject = ToySubject(model, (16, 24))
    (batch,) = subject.pictures(1)
    picture = torch.zeros(3, 16, 24, dtype=torch.uint8)
    picture[:, 4:8, 6:18] = 255
    batch["inputs"] = [picture]
    for placing in (
        Placing(),
        Placing(canvas=(48, 56), padding=True),
        Placing(canvas=(48, 56), at=(5, 7)),
        Placing((2.0, 2.0), (40, 60), (4, 8)),
        Placing((2.0, 0.5)),
    ):
        found = predict(model, batch, lambda size, placing=placing: placing).pred_instances
        assert found.masks.shape == (1, 16, 24)
        # Antialiasing moves the edge of what is lit by a pixel of the canvas at most.
        assert found.bboxes[0].tolist() == pytest.approx([6, 4, 18, 8], abs=2), placing
        assert found.masks.nonzero().amin(0).tolist()[1:] == pytest.approx([4, 6], abs=2), placing


def test_placing() -> None:
    picture = torch.ones(1, 3, 4, 6)
    canvas = place(picture, Placing((2.0, 1.0), (10, 10), (1, 2)), divisor=8)
    assert canvas.shape == (1, 3, 16, 16)
    assert canvas[0, 0].nonzero().amin(0).tolist() == [1, 2]
    assert canvas[0, 0].nonzero().amax(0).tolist() == [8, 7]
    with pytest.raises(ValueError, match="8 x 6 px at"):
        place(picture, Placing((2.0, 1.0), (8, 8), (1, 2)))
    assert centred((10, 20), 2.0) == Placing(canvas=(20, 40), at=(5, 10))
    assert centred((10, 20), 2.0, 2.0) == Placing((2.0, 2.0))
    factors = aspect(4.0)((10, 10)).enlarge
    assert factors == (2.0, 0.5)


def test_relative_curves() -> None:
    assert relative_to_one([0.5, 1.0, 2.0], [1.0, 4.0, None]) == [0.25, 1.0, None]
    assert relative_to_one([1.0, 2.0], [0.0, 1.0]) == [None, None]
    assert area([0.5, 1.0, 2.0], [0.0, 1.0, 0.0]) == pytest.approx(0.5)
    assert area([0.5, 1.0], [None, 1.0]) is None


@pytest.mark.parametrize("text", ["0", "-1", "nan", "x", "11"])
def test_impossible_factors(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"is no factor from 0\.1 to 10"):
        _factor(text)
