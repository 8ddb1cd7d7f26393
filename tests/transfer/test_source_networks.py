"""Features of our backbone with converted weights against the network that the weights came from.

All in float64, at sizes where the networks are the same function: the dense rule for mmdet and
mmseg at any size, the classification rule where the last map is one full window.
"""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
from torch import Tensor

from relpos_mm.models import RelPosSwin
from relpos_mm.transfer import convert, detect

from .helpers import load_npz, randomise

DEPTHS, HEADS = [1, 2, 1, 2], [1, 2, 3, 6]
BOUND = {"rtol": 0, "atol": 1e-10}


def ours(state: dict[str, Tensor], **changes: object) -> RelPosSwin:
    """Our backbone in float64, filled by nothing but converted weights."""
    config: dict[str, object] = {
        "embed_dims": 12,
        "depths": DEPTHS,
        "num_heads": HEADS,
        "window_size": 4,
        "pretrain_img_size": 128,
    }
    model = RelPosSwin(**(config | changes)).double().eval()  # type: ignore[arg-type]
    model.load_state_dict(convert(state), strict=True)
    return model


@pytest.mark.parametrize("library", ["mmdet", "mmseg"])
def test_dense_mm_backbones(library: str) -> None:
    module = import_module(f"{library}.models.backbones.swin")
    theirs = module.SwinTransformer(
        embed_dims=12, depths=DEPTHS, num_heads=HEADS, window_size=4, drop_path_rate=0.0
    )
    randomise(theirs.double()).eval()
    assert detect(theirs.state_dict()) == "mm"
    picture = torch.randn(2, 3, 57, 75, dtype=torch.float64)
    with torch.no_grad():
        pairs = zip(ours(theirs.state_dict())(picture), theirs(picture), strict=True)
    for mine, expected in pairs:
        torch.testing.assert_close(mine, expected, **BOUND)
    # and back: the library takes its own names, buffers included
    back = convert(convert(theirs.state_dict()), target="mm")
    theirs.load_state_dict(back, strict=True)


@pytest.mark.parametrize("absolute", [False, True])
def test_mmpretrain_classifier(absolute: bool) -> None:
    module = import_module("mmpretrain.models.backbones.swin_transformer")
    arch = {"embed_dims": 12, "depths": DEPTHS, "num_heads": HEADS}
    theirs = module.SwinTransformer(
        arch, img_size=128, window_size=4, drop_path_rate=0.0, use_abs_pos_embed=absolute
    )
    randomise(theirs.double()).eval()
    state = theirs.state_dict()
    position = [{"type": "AbsoluteTable"}] * absolute + [{"type": "RelativeBias"}]
    mine = RelPosSwin(
        12, DEPTHS, HEADS, 4, position=position, pretrain_img_size=128, out_indices=(3,),
        small_map="shrink",
    ).double().eval()  # fmt: skip
    mine.load_state_dict(convert(state, grid=(32, 32)), strict=True)
    picture = torch.randn(1, 3, 128, 128, dtype=torch.float64)
    with torch.no_grad():
        # mmpretrain resizes its embedding in float32 even at its own size
        bound = {"rtol": 0, "atol": 2e-5} if absolute else BOUND
        torch.testing.assert_close(mine(picture)[0], theirs(picture)[0], **bound)
    theirs.load_state_dict(convert(mine.state_dict(), target="mm"), strict=True)


def test_torchvision_classifier() -> None:
    swin = import_module("torchvision.models.swin_transformer")
    theirs = swin.SwinTransformer([4, 4], 12, DEPTHS, HEADS, [4, 4], num_classes=5)
    randomise(theirs.double()).eval()
    assert detect(theirs.state_dict()) == "torchvision"
    mine = ours(theirs.state_dict(), out_indices=(3,), small_map="shrink")
    picture = torch.randn(1, 3, 128, 128, dtype=torch.float64)
    with torch.no_grad():
        expected = theirs.norm(theirs.features(picture)).permute(0, 3, 1, 2)
        torch.testing.assert_close(mine(picture)[0], expected, **BOUND)
    rest = theirs.load_state_dict(convert(mine.state_dict(), target="torchvision"), strict=False)
    assert sorted(rest.missing_keys) == ["head.bias", "head.weight"]
    assert rest.unexpected_keys == []


def test_timm_classifier() -> None:
    swin = pytest.importorskip("timm.models.swin_transformer")
    theirs = swin.SwinTransformer(
        img_size=128, window_size=4, embed_dim=12, depths=DEPTHS, num_heads=HEADS, num_classes=5
    )
    randomise(theirs.double()).eval()
    assert detect(theirs.state_dict()) == "timm"
    mine = ours(theirs.state_dict(), out_indices=(3,), small_map="shrink")
    picture = torch.randn(1, 3, 128, 128, dtype=torch.float64)
    with torch.no_grad():
        expected = theirs.forward_features(picture).permute(0, 3, 1, 2)
        torch.testing.assert_close(mine(picture)[0], expected, **BOUND)
    rest = theirs.load_state_dict(convert(mine.state_dict(), target="timm"), strict=False)
    assert sorted(rest.missing_keys) == ["head.fc.bias", "head.fc.weight"]
    assert rest.unexpected_keys == []


@pytest.mark.parametrize("name", ["hf4.npz", "hf5.npz"])
def test_hugging_face_backbone(name: str) -> None:
    """Recorded from transformers 4.57.1 and 5.24.0: picture 24 px, window 3, two stages.

    Its backbone class follows the dense rule, unlike its classifier.
    """
    arrays = load_npz(name)
    state = {k.removeprefix("state/"): v for k, v in arrays.items() if k.startswith("state/")}
    mine = ours(
        state,
        embed_dims=8,
        depths=(1, 2),
        num_heads=(2, 4),
        window_size=3,
        pretrain_img_size=24,
        out_indices=(0, 1),
    )
    with torch.no_grad():
        outputs = mine(arrays["input"].double())
    for index, output in enumerate(outputs):
        torch.testing.assert_close(output, arrays[f"output{index}"], **BOUND)
