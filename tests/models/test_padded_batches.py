"""Batches of pictures of several sizes: each gets from the backbone what it gets alone."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import Config
from torch import Tensor

import relpos_mm.models.cascade  # noqa: F401  registers the detector
from relpos_mm.analysis.catalogue import CATALOGUE
from relpos_mm.models import RelPosSwin
from relpos_mm.models.windows import content_mask, shift_mask, window_plan

from .detr_tools import MINI, build, samples
from .tiny import loud, picture, tiny

SIZES = ((61, 100), (96, 70))  # px; no multiples of the patch, of a window or of each other
CANVAS = (96, 128)
# What no valid region helps: a learned table is stretched over the padded map, as published.
UNSAFE = {"abs"}


def swin(**settings: Any) -> RelPosSwin:
    """Two stages in float64, windows of 4 x 4, padding hidden."""
    settings = {"mask_padding": True, **settings}
    sizes = {"depths": (2, 2), "num_heads": (1, 2), "out_indices": (0, 1), "window_size": 4}
    return loud(tiny(**sizes, **settings)).double().eval()


def batch() -> tuple[list[Tensor], Tensor]:
    """The pictures one by one, and together on the canvas with zeros beside them."""
    alone = [picture(*size).double() for size in SIZES]
    together = torch.zeros(2, 3, *CANVAS, dtype=torch.float64)
    for slot, (one, (height, width)) in zip(together, zip(alone, SIZES, strict=True), strict=True):
        slot[:, :height, :width] = one[0]
    return alone, together


def largest_change(model: RelPosSwin, pictures: Any) -> float:
    """Largest difference that the batch makes to any map, relative to the map's numbers."""
    alone, together = batch()
    changes = []
    for i, maps in enumerate(zip(*(model(one) for one in alone), strict=True)):
        of_batch = model(together, pictures)[i]
        for padded, (own,) in zip(of_batch, maps, strict=True):
            rows, columns = own.shape[1:]
            changes.append(
                ((padded[:, :rows, :columns] - own).abs().max() / own.abs().max()).item()
            )
            if pictures is not None:
                assert not padded[:, rows:].any()
                assert not padded[:, :, columns:].any()
    return max(changes)


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_valid_region_makes_a_picture_independent_of_its_batch(name: str) -> None:
    model = swin(position=CATALOGUE[name])
    changed = largest_change(model, SIZES)
    # Some coordinates are float32; a wrong one changes a map by percents.
    assert changed > 1e-2 if name in UNSAFE else changed < 1e-6


@pytest.mark.parametrize("name", ["rel", "peg", "lepe", "abswin"])
def test_without_it_padding_takes_part(name: str) -> None:
    assert largest_change(swin(position=CATALOGUE[name]), None) > 1e-2


def test_sines_of_detr_count_from_the_pictures_border() -> None:
    sines = {"type": "Sinusoid2d", "form": "detr", "site": "qk_input"}
    assert largest_change(swin(position=[sines]), SIZES) < 1e-6


def test_shown_padding_is_no_more_than_the_published_model_has() -> None:
    """Only ``mask_padding`` makes results independent; regions reach encodings in any case."""
    model = swin(position=CATALOGUE["peg"], mask_padding=False)
    assert largest_change(model, SIZES) > 1e-2
    _, together = batch()
    plain, told = (model(together, pictures)[0][0, :, :16, :25] for pictures in (None, SIZES))
    assert not torch.equal(plain, told)


@pytest.mark.parametrize("with_cp", [False, True])
def test_a_batch_without_padding_is_the_plain_call(with_cp: bool) -> None:
    model = swin(position=CATALOGUE["lepe"], with_cp=with_cp).train()
    x = picture(96, 128, batch=2).double()
    for plain, told in zip(model(x), model(x, [(96, 128)] * 2), strict=True):
        assert torch.equal(plain, told)


def test_gradients_of_a_batch_are_the_sum_of_its_pictures() -> None:
    """With recomputation too: padding gives no gradient to anything."""
    one, other = swin(position=CATALOGUE["peg"]), swin(position=CATALOGUE["peg"], with_cp=True)
    alone, together = batch()
    sum(out.square().sum() for x in alone for out in one(x)).backward()
    sum(out.square().sum() for out in other.train()(together, SIZES)).backward()
    for (name, a), b in zip(one.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(b.grad, a.grad, msg=lambda text, n=name: f"{n}: {text}")


def test_mask_of_a_padded_batch_pair_by_pair() -> None:
    plan = window_plan((6, 9), (4, 4), (2, 2), True, torch.device("cpu"))
    content = torch.zeros(2, 6, 9, dtype=torch.bool)
    content[0, :5, :3] = content[1] = True
    mask = content_mask(plan, content.flatten(1)).view(2, plan.num_windows, 16, 16)
    allowed = shift_mask((6, 9), (4, 4), (2, 2))
    token = plan.index.view(plan.num_windows, 16)
    for image in (0, 1):
        for window in range(plan.num_windows):
            for i in range(16):
                for j in range(16):
                    key = int(token[window, j])
                    real = key < 54 and bool(content[image].flatten()[key])
                    kept = bool(allowed[window, i, j]) and (real or i == j)
                    assert bool(mask[image, window, i, j]) == kept


@pytest.mark.parametrize(
    ("pictures", "settings", "message"),
    [
        ([(96, 128)], {}, "do not belong to a batch of 2"),
        ([(96, 128), (97, 70)], {}, r"\(97, 70\)\] px do not belong .* 96 x 128 px"),
        ([(96, 128), (0, 70)], {}, "do not belong"),
        ([(8.5, 8), (8, 8)], {}, r"pictures of \[\(8\.5, 8\), \(8, 8\)\] px do not belong"),
        ([8, 8], {}, r"pictures of \[8, 8\] px do not belong"),
        (8, {}, "pictures of 8 px do not belong"),
        ("ab", {}, "pictures of 'ab' px do not belong"),
        ([(8, 8), (8, 8, 3)], {}, "do not belong"),
        (SIZES, {"small_map": "shrink"}, "use small_map='pad'"),
    ],
)
def test_sizes_that_cannot_be_are_refused(pictures, settings, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        swin(position=[], **settings)(torch.zeros(2, 3, *CANVAS).double(), pictures)


def test_the_detector_tells_its_backbone() -> None:
    """Sizes of the data samples, and none when the detector is asked for features alone."""
    config = copy.deepcopy(Config.fromfile(Path(MINI) / "cascade_swin_t_peg.py").model)
    config.type = "RelPosCascadeRCNN"
    config.backbone.mask_padding = True
    model = build(config).eval()
    told: list[Any] = []
    model.backbone.register_forward_pre_hook(
        lambda module, args, kwargs: told.append(kwargs["pictures"]), with_kwargs=True
    )
    data = samples(CANVAS, *SIZES)
    for sample, size in zip(data, SIZES, strict=True):
        sample.set_metainfo({"scale_factor": (1.0, 1.0), "ori_shape": size, "pad_shape": CANVAS})
    with torch.no_grad():
        model(picture(*CANVAS, batch=2), data, mode="predict")
        model.extract_feat(picture(*CANVAS, batch=2))
    assert told == [list(SIZES), None]
