"""Whole DETR and DeiT files brought to configs: what is carried, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS

import relpos_mm.models.detr  # noqa: F401  registers the detector
from relpos_mm.transfer import Options, Refused, TransferError, convert, transfer_file
from relpos_mm.transfer.describe import describe

from .helpers import build, randomise, same_tensors
from .test_networks import CONFIGS, state_of

TABLE = "backbone.position.absolute_table.absolute_pos_embed"
IRPE = {"type": "ContextualRpe", "ratio": 1.9, "skip": 1}


def vit(*more: dict[str, Any], classes: int = 5, side: int = 64) -> dict[str, Any]:
    backbone = {
        "type": "RelPosViT",
        "embed_dims": 8,
        "depth": 2,
        "num_heads": 2,
        "patch_size": 16,
        "pretrain_img_size": side,
        "position": [{"type": "AbsoluteTable"}, *more],
    }
    head = {"type": "VisionTransformerClsHead", "num_classes": classes, "in_channels": 8}
    return {"type": "ImageClassifier", "backbone": backbone, "head": head}


def write_config(path: Path, model: dict[str, Any]) -> Path:
    path.write_text(
        "custom_imports = dict(imports=['relpos_mm', 'mmpretrain.models'])\n"
        f"default_scope = 'mmpretrain'\nmodel = {model!r}\n"
    )
    return path


@pytest.fixture
def deit(tmp_path: Path) -> dict[str, torch.Tensor]:
    """State of a small DeiT, which `file.pth` holds under public names."""
    config = Config.fromfile(write_config(tmp_path / "source.py", vit()))
    with MODELS.switch_scope_and_registry("mmpretrain") as registry:
        ours = randomise(registry.build(config.model)).state_dict()
    torch.save({"model": convert(ours, target="official")}, tmp_path / "file.pth")
    return ours


def test_deit_arrives_whole(deit: dict[str, torch.Tensor], tmp_path: Path) -> None:
    report = transfer_file(tmp_path / "file.pth", tmp_path / "out.pth", tmp_path / "source.py")
    assert report.summary.startswith(f"loaded {len(deit)} of {len(deit)} model tensors")
    content = torch.load(tmp_path / "out.pth", weights_only=True)
    assert same_tensors(content["state_dict"], deit)
    assert content["meta"]["transfer"]["position"] == [{"type": "AbsoluteTable"}]
    assert report.position_transferred
    found = describe(tmp_path / "out.pth")
    assert (found.encoding, found.num_classes, found.depths) == ("abs", 5, [2])


def test_deit_of_another_picture_size_and_classes(
    deit: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    config = write_config(tmp_path / "c.py", vit(classes=3, side=96))
    with pytest.raises(Refused, match=r"16 rows, but a grid of 6x6.*--grid H W"):
        transfer_file(tmp_path / "file.pth", tmp_path / "out.pth", config)
    report = transfer_file(
        tmp_path / "file.pth", tmp_path / "out.pth", config, Options(grid=(4, 4))
    )
    assert [entry.key for entry in report.of("resized")] == [TABLE]
    assert [entry.key for entry in report.of("new")] == [
        f"head.layers.head.{p}" for p in ("weight", "bias")
    ]
    written = torch.load(tmp_path / "out.pth", weights_only=True)["state_dict"]
    assert written[TABLE].shape == (1, 8, 6, 6)
    assert not any(key.startswith("head.") for key in written)
    (tmp_path / "out.pth").unlink()
    options = Options(grid=(4, 4), keep_head=True)
    with pytest.raises(Refused, match=r"head.*\(5, 8\) in the file, \(3, 8\) in the config"):
        transfer_file(tmp_path / "file.pth", tmp_path / "out.pth", config, options)
    assert not (tmp_path / "out.pth").exists()


def test_b005_deit_of_another_encoding(deit: dict[str, torch.Tensor], tmp_path: Path) -> None:
    config = write_config(tmp_path / "c.py", vit(IRPE))
    with pytest.raises(Refused, match="file abs, config irpe_k"):
        transfer_file(tmp_path / "file.pth", tmp_path / "out.pth", config)
    allowed = Options(allow_encoding_mismatch=True)
    report = transfer_file(tmp_path / "file.pth", tmp_path / "out.pth", config, allowed)
    assert len(report.of("new")) == 2, "one table per layer"
    assert not report.position_transferred


def test_deit_that_is_deeper_or_incomplete(deit: dict[str, torch.Tensor], tmp_path: Path) -> None:
    model = vit()
    model["backbone"]["depth"] = 1
    config = write_config(tmp_path / "c.py", model)
    with pytest.raises(Refused, match=r"layers.1.*no such layer \(depth"):
        transfer_file(tmp_path / "file.pth", None, config)
    part = {key: value for key, value in deit.items() if key != "backbone.layers.1.attn.qkv.bias"}
    part["backbone.norm.weight"] = torch.full((8,), float("nan"))
    torch.save(part, tmp_path / "part.pth")
    with pytest.raises(Refused) as refused:
        transfer_file(tmp_path / "part.pth", None, tmp_path / "source.py")
    assert "backbone.layers.1.attn.qkv.bias: missing in the file" in str(refused.value)
    assert "backbone.norm.weight: 8 of 8 values are NaN" in str(refused.value)


def test_detr_between_its_configs(tmp_path: Path) -> None:
    ours = state_of("mini/detr_r50_irpe_k")
    torch.save({"model": convert(ours, target="official")}, tmp_path / "public.pth")
    found = describe(tmp_path / "public.pth")
    assert (found.encoding, found.embed_dims > 0) == ("irpe_k", True)
    config = CONFIGS / "mini" / "detr_r50_irpe_k.py"
    report = transfer_file(tmp_path / "public.pth", tmp_path / "out.pth", config)
    assert same_tensors(torch.load(tmp_path / "out.pth", weights_only=True)["state_dict"], ours)
    assert (report.file_encoding, report.config_encoding) == ("irpe_k", "irpe_k")
    with pytest.raises(Refused, match="file irpe_k, config abs"):
        transfer_file(tmp_path / "public.pth", None, CONFIGS / "mini" / "detr_r50_abs.py")


def test_networks_are_not_mixed_up(deit: dict[str, torch.Tensor], tmp_path: Path) -> None:
    detr, swin = CONFIGS / "mini/detr_r50_abs.py", CONFIGS / "mini/cls_swin_t_relonly.py"
    torch.save(build().state_dict(), tmp_path / "swin.pth")
    torch.save({"fc.weight": torch.zeros(2, 2)}, tmp_path / "resnet.pth")
    for file, config, message in (
        ("file.pth", detr, r"file.pth: it holds a DeiT in the layout official, but .*a whole DETR"),
        ("file.pth", swin, r"it holds a whole DeiT \(layout official\), but .* a Swin backbone"),
        ("swin.pth", tmp_path / "source.py", "needs a whole DeiT in one of the layouts"),
        ("resnet.pth", detr, "fc.weight, but .*its ResNet comes by init_cfg"),
    ):
        with pytest.raises(TransferError, match=message):
            transfer_file(tmp_path / file, tmp_path / "out.pth", config)
    options = Options(window=(7, 7), take_backbone=True)
    with pytest.raises(TransferError, match="--window, --take-backbone: serves Swin alone"):
        transfer_file(tmp_path / "file.pth", None, tmp_path / "source.py", options)
    assert not (tmp_path / "out.pth").exists()
