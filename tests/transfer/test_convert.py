"""Every layout, both ways: names, bits, buffers, wrappers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from relpos_mm.transfer import LAYOUTS, TransferError, convert, detect
from relpos_mm.transfer.layouts import READABLE, Template

from .helpers import build, load_npz, same_tensors

OTHERS = [name for name in LAYOUTS if name != "relpos"]


def classifier(encoding: str = "relonly") -> dict[str, Tensor]:
    """State of a classifier's backbone: its only output norm is the last one."""
    return build(encoding, out_indices=(1,), small_map="shrink").state_dict()


@pytest.mark.parametrize("target", OTHERS)
def test_round_trip_returns_the_same_bits(target: str) -> None:
    ours = classifier()
    theirs = convert(ours, target=target)
    assert detect(theirs) == target
    assert same_tensors(convert(theirs), ours)
    assert same_tensors(convert(convert(theirs), target=target), theirs)


@pytest.mark.parametrize("target", ["official", "mm", "hf"])
@pytest.mark.parametrize("encoding", ["noenc", "absonly", "relonly", "absrel"])
def test_round_trip_of_dense_backbones(target: str, encoding: str) -> None:
    ours = build(encoding).state_dict()
    assert same_tensors(convert(convert(ours, target=target), grid=(8, 8)), ours)


@pytest.mark.parametrize("target", ["official", "mm", "hf"])
def test_flat_embedding_stays_flat_without_a_grid(target: str) -> None:
    """A square root would be a guess: 64 rows are 8x8 or 4x16."""
    ours = classifier("absrel")
    theirs = convert(ours, target=target)
    back = convert(theirs)
    key = "position.absolute_table.absolute_pos_embed"
    assert back[key].shape == (1, 64, 8)
    assert convert(theirs, grid=(4, 16))[key].shape == (1, 8, 4, 16)
    assert same_tensors(convert(theirs, grid=(8, 8)), ours)
    assert same_tensors(convert(back, target=target), theirs)


def test_names_of_each_layout() -> None:
    """One block, the merging layer and the norm, letter by letter."""
    ours = classifier()
    expected = {
        "official": (
            "layers.1.blocks.1.mlp.fc1.bias",
            "layers.0.downsample.norm.bias",
            "norm.bias",
        ),
        "mm": (
            "stages.1.blocks.1.ffn.layers.0.0.bias",
            "stages.0.downsample.norm.bias",
            "norm1.bias",
        ),
        "timm": ("layers.1.blocks.1.mlp.fc1.bias", "layers.1.downsample.norm.bias", "norm.bias"),
        "torchvision": ("features.3.1.mlp.0.bias", "features.2.norm.bias", "norm.bias"),
        "hf": (
            "encoder.layers.1.blocks.1.intermediate.dense.bias",
            "encoder.layers.0.downsample.norm.bias",
            "layernorm.bias",
        ),
    }
    for target, names in expected.items():
        assert set(names) <= convert(ours, target=target).keys(), target


def test_buffers_are_dropped_and_written_anew() -> None:
    official = convert(classifier(), target="official")
    index = [key for key in official if key.endswith("relative_position_index")]
    assert len(index) == 3
    for key in index:
        official[key] = torch.full_like(official[key], -1)  # never trusted
    official["layers.1.blocks.1.attn_mask"] = torch.zeros(4, 16, 16)
    ours = convert(official)
    assert same_tensors(ours, classifier())
    assert convert(ours, target="official")[index[0]].shape == (16, 16)
    assert (
        convert(ours, target="torchvision")["features.1.0.attn.relative_position_index"].ndim == 1
    )
    assert not any("index" in key for key in convert(ours, target="timm"))


def test_files_without_buffers_convert_alike() -> None:
    """B026: some libraries no longer save the index."""
    full = convert(classifier(), target="mm")
    bare = {key: value for key, value in full.items() if "index" not in key}
    assert same_tensors(convert(full), convert(bare))


WRAPPERS: dict[str, Callable[[dict[str, Tensor]], object]] = {
    "model": lambda sd: {"model": sd, "epoch": 3},
    "state_dict": lambda sd: {"state_dict": sd, "meta": {"epoch": 1}},
    "module.": lambda sd: {"module." + k: v for k, v in sd.items()},
    "backbone.": lambda sd: {"state_dict": {"backbone." + k: v for k, v in sd.items()}},
    "module.backbone.": lambda sd: {"model": {"module.backbone." + k: v for k, v in sd.items()}},
    "encoder.": lambda sd: {"encoder." + k: v for k, v in sd.items()},
    "swin.": lambda sd: {"swin." + k: v for k, v in sd.items()},
    "ema": lambda sd: {"state_dict_ema": sd},
    "module": lambda sd: {"module": sd, "global_steps": 3},
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_wrappers_come_off(layout: str, wrapper: str) -> None:
    """B003 a to d, B002, B023."""
    theirs = convert(classifier(), target=layout)
    wrapped = WRAPPERS[wrapper](theirs)
    assert detect(wrapped) == layout  # type: ignore[arg-type]
    assert same_tensors(convert(wrapped), classifier())  # type: ignore[arg-type]


def test_heads_and_strangers_outside_the_body_are_dropped() -> None:
    official = convert(classifier(), target="official")
    official |= {"head.weight": torch.zeros(5, 16), "head.bias": torch.zeros(5)}
    official |= {"projector.0.weight": torch.zeros(2, 2)}
    assert same_tensors(convert(official), classifier())


def test_older_timm_files_carry_official_names() -> None:
    timm = convert(classifier(), target="official") | {"head.fc.weight": torch.zeros(5, 16)}
    assert detect(timm) == "official"
    assert same_tensors(convert(timm, source="timm"), classifier())


@pytest.mark.parametrize("name", ["hf4.npz", "hf5.npz"])
def test_both_generations_of_hugging_face_names(name: str) -> None:
    arrays = load_npz(name)
    state = {k.removeprefix("state/"): v for k, v in arrays.items() if k.startswith("state/")}
    assert detect(state) == "hf"
    ours = convert(state)
    assert ours["stages.0.blocks.0.attn.qkv.weight"].shape == (24, 8)
    assert ours["norm0.weight"].shape == (8,)
    back = convert(ours, target="hf")
    norms = [key for key in back if "hidden_states_norms" in key]
    assert len(norms) == 4
    if name == "hf4.npz":  # the names that files on disk have
        kept = {key: value for key, value in state.items() if "index" not in key}
        assert same_tensors(back, kept)


def test_other_networks_are_refused() -> None:
    """B003 e and f."""
    resnet = {f"layer{i}.0.conv1.weight": torch.zeros(1) for i in (1, 2)}
    convnext = {"stem.0.weight": torch.zeros(1), "stages.0.blocks.0.conv_dw.weight": torch.zeros(1)}
    for foreign in (resnet, convnext):
        with pytest.raises(TransferError, match="no Swin backbone in any known layout"):
            detect(foreign)
    for empty in ({}, {"state_dict": {}}, {"meta": {"epoch": 1}}):
        with pytest.raises(TransferError, match="no tensors"):
            detect(empty)
    with pytest.raises(TransferError, match="list is not a state dict"):
        convert([1, 2])  # type: ignore[arg-type]
    v2 = convert(classifier(), target="official")
    v2["layers.0.blocks.0.attn.cpb_mlp.0.weight"] = torch.zeros(1)
    with pytest.raises(TransferError, match="Swin V2"):
        convert(v2)


def test_doubtful_files_are_refused() -> None:
    official = convert(classifier(), target="official")
    twice = {p + key: value for p in ("teacher.", "student.") for key, value in official.items()}
    with pytest.raises(TransferError, match=r"several backbones.*student.*teacher.*--prefix"):
        convert(twice)
    assert same_tensors(convert(twice, prefix="student"), classifier())
    apart = {"student": official, "teacher": official, "epoch": 3}
    with pytest.raises(TransferError, match=r"several backbones.*student.*teacher.*--prefix"):
        convert(apart)
    assert same_tensors(convert(apart, prefix="teacher"), classifier())
    beside = {f"x.backbone.{key}": value for key, value in build().state_dict().items()}
    with pytest.raises(TransferError, match="are one tensor of the backbone"):
        convert(beside | {"x.norm1.bias": torch.zeros(16)})
    mixed = official | convert(classifier(), target="torchvision")
    with pytest.raises(
        TransferError, match="mixture of the layouts official and timm and torchvision"
    ):
        convert(mixed)
    both = official | {"layers.1.downsample.norm.weight": torch.zeros(32)}
    with pytest.raises(TransferError, match="neither official Swin"):
        convert(both)
    with pytest.raises(TransferError, match=r"layers.0.blocks.0.gamma"):
        convert(official | {"layers.0.blocks.0.gamma": torch.zeros(8)})
    hf = convert(classifier(), target="hf")
    del hf["encoder.layers.0.blocks.0.attention.self.key.bias"]
    with pytest.raises(TransferError, match=r"query.bias: its sibling key is not in the file"):
        convert(hf)


def test_wrong_names_of_layouts_are_refused() -> None:
    official = convert(classifier(), target="official")
    with pytest.raises(TransferError, match="no layout is called 'swin'"):
        convert(official, target="swin")
    with pytest.raises(TransferError, match="no layout is called 'auto'"):
        convert(official, target="auto")
    with pytest.raises(TransferError, match="asked to read the layout mm"):
        convert(official, source="mm")


@pytest.mark.parametrize("target", ["timm", "torchvision"])
def test_no_layout_loses_a_position_encoding(target: str) -> None:
    with pytest.raises(TransferError, match="no place for this position encoding"):
        convert(classifier("absrel"), target=target)


@pytest.mark.parametrize("layout", READABLE, ids=lambda layout: layout.name)
def test_templates_fill_what_they_match(layout: object) -> None:
    fields = {"i": "2", "j": "11", "p": "bias", "part": "", "rest": "a.b"}
    for part in layout.qkv_parts or ("",):  # type: ignore[attr-defined]
        for role, template in layout.templates.items():  # type: ignore[attr-defined]
            key = template.fill(fields | {"part": part})
            assert layout.role_of(key)[0] == role, key  # type: ignore[attr-defined]


def test_template_numbers() -> None:
    template = Template("features.{2i+1}.{j}.norm1.{p}")
    assert template.match("features.5.1.norm1.bias") == {"i": "2", "j": "1", "p": "bias"}
    assert template.match("features.4.1.norm1.bias") is None
    assert Template("layers.{i+1}.x").match("layers.0.x") is None
