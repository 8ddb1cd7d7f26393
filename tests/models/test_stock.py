"""Side by side with the Swin of mmdet, mmseg and mmpretrain, and where those fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mmdet.registry
import mmpretrain.registry
import mmseg.registry
import pytest
import torch
from mmdet.models.backbones.swin import SwinTransformer as DetSwin
from mmengine.config import ConfigDict
from mmengine.registry import MODELS
from mmpretrain.models.backbones.swin_transformer import SwinTransformer as ClsSwin
from mmseg.models.backbones.swin import SwinTransformer as SegSwin
from torch import Tensor, nn

from relpos_mm.models import RelPosSwin
from relpos_mm.transfer import convert

from .tiny import ABSOLUTE, RELATIVE, loud, picture, tiny

SIZES = [(97, 131), (64, 64), (30, 45), (224, 224)]
WIDTHS = {"embed_dims": 12, "depths": (2, 2, 2, 2), "num_heads": (1, 2, 3, 6)}


def stock(library: str, pixels: int = 64, absolute: bool = False, **changes: Any) -> nn.Module:
    if library == "mmpretrain":
        return ClsSwin(
            arch={
                "embed_dims": WIDTHS["embed_dims"],
                "depths": WIDTHS["depths"],
                "num_heads": WIDTHS["num_heads"],
            },
            img_size=pixels,
            window_size=7,
            drop_path_rate=0.0,
            use_abs_pos_embed=absolute,
            out_indices=(0, 1, 2, 3),
            **{"pad_small_map": True, **changes},
        )
    cls = DetSwin if library == "mmdet" else SegSwin
    return cls(
        **WIDTHS,
        pretrain_img_size=pixels,
        window_size=7,
        drop_path_rate=0.0,
        use_abs_pos_embed=absolute,
        **changes,
    )


def load_ours(model: nn.Module, ours: RelPosSwin) -> nn.Module:
    """Our weights in the stock model, nothing left over; only index buffers are the model's own."""
    result = model.load_state_dict(convert(ours.state_dict(), target="mm"), strict=False)
    assert result.unexpected_keys == []
    assert all(key.endswith("relative_position_index") for key in result.missing_keys)
    model.eval()  # returns None in the stock libraries
    return model


def assert_equal_outputs(ours: RelPosSwin, theirs: nn.Module, *size: int) -> None:
    x = picture(*size, batch=2).double()
    with torch.no_grad():
        for a, b in zip(ours(x), theirs(x), strict=True):
            torch.testing.assert_close(a, b, atol=1e-10, rtol=0)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("library", ["mmdet", "mmseg", "mmpretrain"])
def test_relative_bias_equals_stock_at_every_size(library: str, size: tuple[int, int]) -> None:
    ours = loud(tiny()).double().eval()
    assert_equal_outputs(ours, load_ours(stock(library), ours).double(), *size)


@pytest.mark.parametrize("library", ["mmdet", "mmseg", "mmpretrain"])
def test_absolute_embedding_equals_stock_at_the_pretraining_size(library: str) -> None:
    ours = loud(tiny(position=[ABSOLUTE, RELATIVE])).double().eval()
    theirs = load_ours(stock(library, absolute=True), ours).double()
    assert_equal_outputs(ours, theirs, 64, 64)


def test_the_shrinking_rule_equals_mmpretrains_default() -> None:
    """At 224 pixels the last map is one window, which is not shifted."""
    ours = loud(tiny(pretrain_img_size=224, small_map="shrink")).double().eval()
    theirs = load_ours(stock("mmpretrain", pixels=224, pad_small_map=False), ours).double()
    assert_equal_outputs(ours, theirs, 224, 224)


def test_absolute_embedding_equals_mmpretrain_at_other_sizes() -> None:
    ours = loud(tiny(position=[ABSOLUTE, RELATIVE])).double().eval()
    theirs = load_ours(stock("mmpretrain", absolute=True), ours).double()
    x = picture(97, 131).double()
    for a, b in zip(ours(x), theirs(x), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=0)  # it resizes in float32


def test_gradients_equal_stock_mmdet() -> None:
    ours = loud(tiny()).double().eval()
    theirs = load_ours(stock("mmdet"), ours).double()
    x = picture(50, 70).double()
    for model in (ours, theirs):
        sum((i + 1) * out.sin().sum() for i, out in enumerate(model(x))).backward()
    gradients = {name: parameter.grad for name, parameter in ours.named_parameters()}
    expected = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for name, gradient in convert(gradients, target="mm").items():
        if name in expected:  # index buffers have none
            torch.testing.assert_close(gradient, expected.pop(name), atol=1e-9, rtol=1e-9)
    assert not expected


def test_one_process_builds_the_same_class_for_every_library() -> None:
    cfg = {"type": "RelPosSwin", **WIDTHS}
    registries = (MODELS, *(lib.registry.MODELS for lib in (mmdet, mmseg, mmpretrain)))
    assert {type(registry.build(cfg)) for registry in registries} == {RelPosSwin}


# What makes this project necessary: an absolute embedding cannot be used in the stock detectors
# and segmenters. Should one of these fail, the library was repaired: say so in the README.


def classifier_file(folder: Path, model: nn.Module) -> tuple[Path, dict[str, Tensor]]:
    """A checkpoint as mmengine's runner writes it for a classifier."""
    state = {f"backbone.{key}": value for key, value in model.state_dict().items()}
    file = folder / "classifier.pth"
    torch.save({"state_dict": state}, file)
    return file, state


@pytest.mark.parametrize("library", ["mmdet", "mmseg"])
@pytest.mark.parametrize("size", [(224, 288), (97, 131), (800 // 4, 1344 // 4)], ids=str)
def test_stock_absolute_embedding_crashes_at_other_sizes(
    library: str, size: tuple[int, int]
) -> None:
    theirs = stock(library, pixels=224, absolute=True)
    with pytest.raises(RuntimeError, match="must match the size of tensor b"):
        theirs(picture(*size))
    assert tiny(position=[ABSOLUTE], pretrain_img_size=224)(picture(*size))[0].shape[1] == 12


@pytest.mark.parametrize("library", ["mmdet", "mmseg"])
def test_stock_absolute_embedding_is_scrambled_where_the_token_count_agrees(library: str) -> None:
    """112 x 448 pixels have as many tokens as 224 x 224: rows of another width are added."""
    theirs = stock(library, pixels=224, absolute=True)
    with torch.no_grad():
        ramp = torch.arange(56.0)[:, None].expand(56, 56)  # a value per row of the grid
        theirs.absolute_pos_embed.copy_(ramp.reshape(1, -1, 1))
        seen: list[Tensor] = []
        theirs.stages[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
        x = picture(112, 448)
        theirs(x)
        added = seen[0] - theirs.patch_embed(x)[0]
    rows = added[0, :, 0].view(28, 112)
    assert rows[0, 0] != pytest.approx(rows[0, -1].item(), abs=0.5)


@pytest.mark.parametrize("with_embedding", [True, False])
@pytest.mark.parametrize("library", ["mmdet", "mmseg"])
def test_stock_loaders_refuse_every_checkpoint_with_an_absolute_embedding(
    library: str, with_embedding: bool, tmp_path: Path
) -> None:
    """Even one of the same size: they unpack four numbers from a shape of three."""
    file, state = classifier_file(tmp_path, stock(library, absolute=True))
    init_cfg = ConfigDict(type="Pretrained", checkpoint=str(file))
    theirs = stock(library, absolute=with_embedding, init_cfg=init_cfg)
    with pytest.raises(ValueError if with_embedding else AttributeError) as error:
        theirs.init_weights()
    expected = "unpack" if with_embedding else "absolute_pos_embed"
    assert expected in str(error.value)

    ours = tiny(position=[ABSOLUTE, RELATIVE], pretrain_img_size=96)
    ours.load_state_dict(convert(state, grid=(16, 16)))
    assert ours.position["absolute_table"].absolute_pos_embed.shape == (1, 12, 24, 24)


@pytest.mark.parametrize("library", ["mmdet", "mmseg"])
def test_stock_loaders_crash_on_another_window(library: str, tmp_path: Path) -> None:
    """The tables are resized, but the saved index buffer of the old window is not removed."""
    file, state = classifier_file(tmp_path, stock(library))
    cls = DetSwin if library == "mmdet" else SegSwin
    init_cfg = ConfigDict(type="Pretrained", checkpoint=str(file))
    with pytest.raises(RuntimeError, match="relative_position_index"):
        cls(**WIDTHS, window_size=5, init_cfg=init_cfg).init_weights()
    tiny(window_size=5).load_state_dict(convert(state))


@pytest.mark.parametrize("library", ["mmdet", "mmseg", "mmpretrain"])
def test_stock_tables_start_at_zero_from_scratch(library: str) -> None:
    """The official recipe draws them from a normal of 0.02."""
    theirs = stock(library)
    theirs.init_weights()
    table = theirs.stages[0].blocks[0].attn.w_msa.relative_position_bias_table
    ours = tiny().stages[0].blocks[0].attn.position["relative_bias"].relative_position_bias_table
    assert ours.std().item() == pytest.approx(0.02, abs=0.005)
    assert bool((table == 0).all()) == (library != "mmpretrain")
