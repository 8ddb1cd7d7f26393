"""What is refused: one clear message, a non-zero exit, and nothing written."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from relpos_mm.transfer import Options, Refused, TransferError, convert, transfer_file

from .helpers import POSITIONS, backbone_config, build

PAIRS = list(itertools.permutations(POSITIONS, 2))


def write_config(path: Path, encoding: str = "relonly", **changes: Any) -> Path:
    """A detector's config as far as a transfer reads it."""
    model = {"type": "CascadeRCNN", "backbone": backbone_config(encoding, **changes)}
    path.write_text(f"custom_imports = dict(imports=['relpos_mm'])\nmodel = {model!r}\n")
    return path


def refuse(tmp_path: Path, content: Any, message: str, options: Options | None = None) -> None:
    """Transfer ``content`` to a relonly detector: refused with ``message``, nothing written."""
    config = write_config(tmp_path / "config.py")
    torch.save(content, tmp_path / "file.pth")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(TransferError, match=message):
        transfer_file(tmp_path / "file.pth", tmp_path / "out.pth", config, options)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def official(encoding: str = "relonly", **changes: Any) -> dict[str, Tensor]:
    state = build(encoding, **({"out_indices": (1,)} | changes)).state_dict()
    return convert(state, target="official", grid=(8, 8))


@pytest.mark.parametrize(("file", "config"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_other_encodings_are_refused(tmp_path: Path, file: str, config: str) -> None:
    """B005: all twelve pairs, both encodings and the keys named."""
    torch.save({"model": official(file)}, tmp_path / "file.pth")
    path = write_config(tmp_path / "config.py", config)
    arguments = (tmp_path / "file.pth", tmp_path / "out.pth", path)
    with pytest.raises(Refused) as refused:
        transfer_file(*arguments)
    message = str(refused.value)
    assert f"file {file}, config {config}" in message
    assert "--allow-encoding-mismatch" in message
    extra = {"AbsoluteTable": "absolute_pos_embed", "RelativeBias": "relative_position_bias_table"}
    for name, word in extra.items():
        differs = any(
            ({"type": name} in POSITIONS[one]) and ({"type": name} not in POSITIONS[two])
            for one, two in ((file, config), (config, file))
        )
        assert (word in refused.value.report.problems()) == differs
    assert not (tmp_path / "out.pth").exists()

    report = transfer_file(*arguments, Options(allow_encoding_mismatch=True))
    assert not report.position_transferred
    facts = torch.load(tmp_path / "out.pth", weights_only=True)["meta"]["transfer"]
    assert facts["encoding_mismatch_allowed"] is True
    assert facts["position_transferred"] is False
    assert (facts["file_encoding"], facts["config_encoding"]) == (file, config)


def test_encodings_without_parameters_show_in_the_files_own_config(tmp_path: Path) -> None:
    sinusoid = backbone_config(position=[{"type": "Sinusoid2d"}])
    text = f"import os\nmodel = dict(type='ImageClassifier', backbone={sinusoid!r})\nx = os.sep"
    content = {"state_dict": build("noenc").state_dict(), "meta": {"cfg": text}}
    torch.save(content, tmp_path / "file.pth")
    config = write_config(tmp_path / "config.py", "noenc")
    with pytest.raises(Refused, match="file sin2d, config noenc"):
        transfer_file(tmp_path / "file.pth", None, config)


def test_an_encoding_without_parameters_is_never_assumed_in_foreign_files(tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.py", position=[{"type": "Sinusoid2d"}])
    torch.save(official("noenc"), tmp_path / "file.pth")
    with pytest.raises(Refused, match="file noenc, config sin2d"):
        transfer_file(tmp_path / "file.pth", None, config)
    # a bare file of ours does not tell; the report says so
    torch.save(build("noenc").state_dict(), tmp_path / "file.pth")
    report = transfer_file(tmp_path / "file.pth", None, config)
    reasons = [entry.reason for entry in report.entries if entry.key == "Sinusoid2d"]
    assert reasons == ["has no tensors, and the file does not say whether it was trained with it"]


def test_a_transferred_file_tells_its_own_config(tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.py", position=[{"type": "Sinusoid2d"}])
    torch.save(build("noenc").state_dict(), tmp_path / "file.pth")
    transfer_file(tmp_path / "file.pth", tmp_path / "out.pth", config)
    with pytest.raises(Refused, match="file sin2d, config noenc"):
        transfer_file(tmp_path / "out.pth", None, write_config(tmp_path / "other.py", "noenc"))


def test_heads_without_tables_show_in_the_files_own_config(tmp_path: Path) -> None:
    stated = backbone_config("noenc", num_heads=(2, 2))
    content = {
        "state_dict": build("noenc").state_dict(),
        "meta": {"cfg": f"model=dict(backbone={stated})"},
    }
    torch.save(content, tmp_path / "file.pth")
    config = write_config(tmp_path / "config.py", "noenc")
    with pytest.raises(Refused, match=r"\[2, 2\] in the file's own config, \[2, 4\].*num_heads"):
        transfer_file(tmp_path / "file.pth", None, config)


def test_heads(tmp_path: Path) -> None:
    """B029: key, both shapes and the config field."""
    message = r"relative_position_bias_table \(and 1 more\): \(49, 2\) .* \(49, 4\).*num_heads"
    refuse(tmp_path, official(num_heads=(2, 2)), message)


def test_channels(tmp_path: Path) -> None:
    message = r"patch_embed.projection.bias.*: \(16,\) in the file, \(8,\) .*; set embed_dims"
    refuse(tmp_path, official(embed_dims=16), message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mlp_ratio": 2.0}, r"fc|ffn.layers.0.0.weight.*\(16, 8\).*\(32, 8\).*mlp_ratio"),
        ({"in_channels": 4}, r"projection.weight: \(8, 4, 4, 4\).*in_channels"),
        ({"patch_size": 2, "pretrain_img_size": 16}, r"projection.weight: .*patch_size"),
        ({"depths": (1, 3)}, r"layers.1.blocks.2.*no such block or layer \(depths\)"),
        ({"depths": (1, 1)}, r"stages.1.blocks.1.*missing in the file.*depths"),
        ({"qkv_bias": False}, r"attn.qkv.bias.*missing in the file.*qkv_bias"),
    ],
)
def test_other_sizes_name_the_config_field(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    refuse(tmp_path, {"model": official(**changes)}, message)


def test_channels_of_an_absolute_embedding(tmp_path: Path) -> None:
    state = official("absrel")
    state["absolute_pos_embed"] = torch.zeros(1, 4, 8, 8)
    torch.save(state, tmp_path / "file.pth")
    config = write_config(tmp_path / "config.py", "absrel")
    with pytest.raises(Refused, match=r"absolute_pos_embed: \(1, 4, 8, 8\).*embed_dims"):
        transfer_file(tmp_path / "file.pth", tmp_path / "out.pth", config)


def resnet() -> dict[str, Tensor]:
    return {"conv1.weight": torch.zeros(8, 3, 7, 7), "layer1.0.conv1.weight": torch.zeros(8)}


def finished(*parts: str) -> dict[str, Any]:
    body = {f"backbone.{key}": value for key, value in build().state_dict().items()}
    return {"state_dict": body | {f"{part}.conv.weight": torch.zeros(1) for part in parts}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: {"model": resnet()}, "no Swin backbone in any known layout.*conv1.weight"),
        (dict, "no tensors"),
        (lambda: {"state_dict": {}}, "no tensors"),
        (lambda: [1, 2], "list is not a state dict"),
        (lambda: finished("neck", "rpn_head", "roi_head"), "finished detector.*--take-backbone"),
        (lambda: finished("decode_head"), "finished segmentor.*--take-backbone"),
        (
            lambda: official() | {"layers.0.blocks.0.gamma_1": torch.zeros(8)},
            "gamma_1: unknown tensor inside the file's backbone",
        ),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, content: Callable[[], Any], message: str) -> None:
    """B003 e and f, B022."""
    refuse(tmp_path, content(), message)


def test_backbone_of_a_finished_model_on_request(tmp_path: Path) -> None:
    torch.save(finished("neck", "roi_head"), tmp_path / "file.pth")
    config = write_config(tmp_path / "config.py")
    options = Options(take_backbone=True)
    report = transfer_file(tmp_path / "file.pth", tmp_path / "out.pth", config, options)
    assert report.kind == "detector"
    assert "roi_head is no part of the backbone" in json.dumps(report.to_dict())


def test_nothing_fits(tmp_path: Path) -> None:
    everything_else = {
        key: value.repeat(2, *[1] * (value.ndim - 1)) for key, value in official().items()
    }
    refuse(tmp_path, everything_else, "no tensor of the file fits the config's backbone")


def test_configs_that_cannot_be_used(tmp_path: Path) -> None:
    torch.save(official(), tmp_path / "file.pth")
    (tmp_path / "broken.py").write_text("model = dict(")
    (tmp_path / "resnet.py").write_text("model = dict(backbone=dict(type='ResNet'))")
    write_config(tmp_path / "typo.py", widow_size=7)
    for name, message in (
        ("absent.py", "absent.py: no such config file"),
        ("broken.py", "broken.py: not a readable config"),
        ("resnet.py", "resnet.py: model.backbone is 'ResNet'"),
        ("typo.py", "typo.py: model.backbone cannot be built.*widow_size"),
    ):
        with pytest.raises(TransferError, match=message):
            transfer_file(tmp_path / "file.pth", tmp_path / "out.pth", tmp_path / name)
    assert not (tmp_path / "out.pth").exists()


@pytest.mark.parametrize("name", ["grid", "prefix_tokens", "fit_tables", "split_absolute"])
def test_options_that_nothing_would_read(tmp_path: Path, name: str) -> None:
    option = {"grid": (9, 9), "prefix_tokens": 1}.get(name, True)
    message = f"--{name.replace('_', '-')}: serves .*; leave it out"
    refuse(tmp_path, official(), message, Options(**{name: option}))


def test_names_that_are_none_of_weights(tmp_path: Path) -> None:
    torch.save(official(), tmp_path / "file.pth")
    config = write_config(tmp_path / "config.py")
    with pytest.raises(TransferError, match=r"out\.txt: give a name that ends in \.pth"):
        transfer_file(tmp_path / "file.pth", tmp_path / "out.txt", config)
