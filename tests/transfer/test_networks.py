"""Whole models of DETR and DeiT between layouts, with and without iRPE."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from torch import Tensor

import relpos_mm.models.detr  # noqa: F401  registers the detector
from relpos_mm.checks.model import build_on_meta
from relpos_mm.transfer import Options, TransferError, convert, detect, export_file
from relpos_mm.transfer.describe import describe
from relpos_mm.transfer.networks import _UNUSED_IDS

from .helpers import same_tensors

CONFIGS = Path(__file__).parents[2] / "configs"


def state_of(name: str) -> dict[str, Tensor]:
    """Distinct small numbers in every tensor of a config's model."""
    shapes = build_on_meta(Config.fromfile(CONFIGS / f"{name}.py")).state_dict()
    generator = torch.Generator().manual_seed(0)
    state = {}
    for key, value in shapes.items():
        if key.endswith("num_batches_tracked"):
            state[key] = torch.zeros((), dtype=torch.int64)
        else:
            state[key] = torch.rand(value.shape, generator=generator)
    return state


@pytest.mark.parametrize("target", ["official", "mm"])
def test_detr_round_trip_returns_the_same_bits(target: str) -> None:
    ours = state_of("mini/detr_r50_abs")
    theirs = convert(ours, target=target)
    assert (detect(ours), detect(theirs)) == ("relpos", target)
    assert same_tensors(convert({"model": theirs}), ours)
    assert same_tensors(convert(convert(theirs), target=target), theirs)


@pytest.mark.parametrize("slug", ["irpe_qkv", "irpe_bias"])
def test_detr_irpe_round_trip(slug: str) -> None:
    ours = state_of(f"mini/detr_r50_{slug}")
    theirs = convert(ours, target="official")
    assert same_tensors(convert({f"module.{key}": value for key, value in theirs.items()}), ours)
    with pytest.raises(TransferError, match=r"mm of DETR has no place for .*rpe_"):
        convert(ours, target="mm")


def test_names_of_public_detr_irpe() -> None:
    """Letter by letter, of the full-size network."""
    ours = state_of("detr_r50_irpe_k")
    theirs = convert(ours, target="official")
    shapes = {key: tuple(value.shape) for key, value in theirs.items()}
    layer = "transformer.encoder.layers.5."
    for key, shape in {
        layer + "self_attn.rpe_k.lookup_table_weight": (1, 32, 81),
        layer + "self_attn.in_proj_weight": (768, 256),
        layer + "self_attn.out_proj.bias": (256,),
        layer + "linear1.weight": (2048, 256),
        "transformer.decoder.layers.0.multihead_attn.in_proj_bias": (768,),
        "transformer.decoder.layers.5.norm3.weight": (256,),
        "transformer.decoder.norm.bias": (256,),
        "query_embed.weight": (100, 256),
        "input_proj.weight": (256, 2048, 1, 1),
        "class_embed.weight": (92, 256),
        "bbox_embed.layers.2.weight": (4, 256),
        "backbone.0.body.layer4.2.conv3.weight": (2048, 512, 1, 1),
        "backbone.0.body.bn1.running_var": (64,),
    }.items():
        assert shapes[key] == shape
    assert not any("num_batches_tracked" in key for key in theirs)
    # The rows of COCO's 80 classes and of "no object"; ids that COCO does not use never win.
    bias = theirs["class_embed.bias"]
    assert torch.equal(bias[91], ours["bbox_head.fc_cls.bias"][80])
    assert torch.equal(bias[1], ours["bbox_head.fc_cls.bias"][0])
    assert torch.equal(bias[90], ours["bbox_head.fc_cls.bias"][79])
    assert (bias[list(_UNUSED_IDS)] < -50).all()
    assert same_tensors(convert(theirs), ours)


@pytest.mark.parametrize("slug", ["abs", "irpe_qkv", "irpe_k_noabs"])
def test_deit_round_trip(slug: str) -> None:
    ours = state_of(f"cls_deit_s_{slug}")
    theirs = convert(ours, target="official")
    assert detect(theirs) == "official"
    back = convert({"model": theirs})
    assert same_tensors(convert(back, target="official"), theirs)
    table = "backbone.position.absolute_table.absolute_pos_embed"
    if table in ours:  # its grid is the loading model's
        assert theirs["pos_embed"].shape == (1, 197, 384)
        ours[table] = ours[table].flatten(2).transpose(1, 2)
    assert same_tensors(back, ours)
    if slug == "irpe_qkv":
        assert theirs["blocks.11.attn.rpe_v.lookup_table_weight"].shape == (1, 50, 64)
        assert theirs["head.weight"].shape == (1000, 384)


def test_foreign_tensors_and_layouts_are_named() -> None:
    learned = convert(state_of("mini/detr_r50_abs"), target="official")
    learned["backbone.1.row_embed.weight"] = torch.zeros(50, 32)
    with pytest.raises(TransferError, match=r"unknown to the layout official of DETR.*row_embed"):
        convert(learned)
    with pytest.raises(TransferError, match="DETR has no layout 'timm'"):
        convert(state_of("mini/detr_r50_abs"), target="timm")


def test_files(tmp_path: Path) -> None:
    """The tool's two ways: say what a file is, and write it in another layout."""
    ours = state_of("mini/detr_r50_irpe_k")
    torch.save({"state_dict": ours}, tmp_path / "ours.pth")
    with pytest.raises(TransferError, match="--grid, --prefix: has no effect on a whole DETR"):
        export_file(tmp_path / "ours.pth", None, "official", Options(grid=(7, 7), prefix="b."))
    line = export_file(tmp_path / "ours.pth", tmp_path / "public.pth", "official", Options())
    assert "layout official" in line
    found = describe(tmp_path / "public.pth")
    assert (found.kind, found.layout, found.usable) == ("detector (DETR)", "official", True)
    public = torch.load(tmp_path / "public.pth", weights_only=True)
    assert same_tensors(convert(public), ours)
