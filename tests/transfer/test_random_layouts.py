"""Whatever the size, layout, wrapping and junk of a file: the same bits, no silent drop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from relpos_mm.models import RelPosSwin
from relpos_mm.transfer import LAYOUTS, Options, TransferError, convert, detect
from relpos_mm.transfer.layouts import READABLE, RELPOS
from relpos_mm.transfer.run import fit_checkpoint
from relpos_mm.transfer.source import BUFFER, read_weights
from relpos_mm.transfer.target import Target, build_target

from .helpers import POSITIONS, same_tensors

STEADY = settings(
    derandomize=True,
    deadline=None,
    max_examples=20,
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine is no fault of the strategy
)
SIDE = st.integers(1, 4)
WORD = st.sampled_from(["module", "backbone", "swin", "encoder", "model", "student", "net_1"])
# Config, layout, the state under our names and the same under the layout's.
File = tuple[dict[str, Any], str, dict[str, Tensor], dict[str, Tensor]]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@st.composite
def backbones(draw: st.DrawFn) -> dict[str, Any]:
    """Config of a Swin of any depth, width, window and encoding, cheap enough to build."""
    stages = draw(st.integers(2, 4))
    heads = [draw(st.integers(1, 2)) * 2**i for i in range(stages)]
    return {
        "embed_dims": max(heads),
        "depths": tuple(draw(st.integers(1, 2)) for _ in range(stages)),
        "num_heads": tuple(heads),
        "window_size": draw(st.tuples(SIDE, SIDE)),
        "mlp_ratio": draw(st.sampled_from([1.0, 2.0])),
        "qkv_bias": draw(st.booleans()),
        "pretrain_img_size": (8 * draw(SIDE), 8 * draw(SIDE)),
        "out_indices": draw(st.sampled_from([tuple(range(stages)), (stages - 1,)])),
        "position": POSITIONS[draw(st.sampled_from(sorted(POSITIONS)))],
    }


def filled(config: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Tensor]:
    """State of that backbone with values that tell neighbours and tensors apart."""
    state = RelPosSwin(**config).state_dict()
    return {
        key: (torch.arange(value.numel()) % 4001 / 7 + index).to(dtype).view(value.shape)
        for index, (key, value) in enumerate(state.items())
    }


def has_place(layout: str, config: Mapping[str, Any]) -> bool:
    """Whether a layout has names for everything: no embedding or stage norms in some."""
    absolute = {"type": "AbsoluteTable"} in config["position"]
    dense = len(config["out_indices"]) > 1
    return layout not in ("timm", "torchvision") or not (absolute or dense)


@st.composite
def files(draw: st.DrawFn) -> File:
    """Config, layout, the state under our names and the same under the layout's."""
    config = draw(backbones())
    layout = draw(st.sampled_from(sorted(LAYOUTS)))
    assume(has_place(layout, config))
    ours = filled(config, draw(st.sampled_from(DTYPES)))
    return config, layout, ours, convert(ours, target=layout)


def grid_of(config: Mapping[str, Any]) -> tuple[int, int]:
    height, width = config["pretrain_img_size"]
    return height // 4, width // 4


@st.composite
def wrapped(draw: st.DrawFn, state: Mapping[str, Tensor]) -> Any:
    """The state under a random prefix, beside junk, in a random container."""
    words = draw(st.lists(WORD, max_size=3))
    prefix = "".join(f"{word}." for word in words)
    parent = "".join(f"{word}." for word in words[:-1])
    junk = {
        f"{parent}{name}.{i}": torch.full((2,), float(i), dtype=draw(st.sampled_from(DTYPES)))
        for i, name in enumerate(draw(st.lists(st.sampled_from(["neck", "proj_x", "ema_y"]))))
    }
    content = {prefix + key: value for key, value in state.items()} | junk
    box = draw(st.sampled_from(["", "model", "state_dict", "state_dict_ema", "ema", "both"]))
    if box == "both":
        return {"epoch": 3, "state_dict": content, "optimizer": {"state": {}}}
    return content if not box else {box: content, "epoch": 3}


@STEADY
@given(file=files(), data=st.data())
def test_round_trips_return_the_same_bits_through_any_wrapping(
    file: File, data: st.DataObject
) -> None:
    config, layout, ours, theirs = file
    content = data.draw(wrapped(theirs))
    assert detect(content) == layout
    back = convert(content, grid=grid_of(config))
    assert same_tensors(back, ours)
    assert same_tensors(convert(back, target=layout), theirs)


@STEADY
@given(file=files(), data=st.data())
def test_junk_inside_the_backbone_is_named(file: File, data: st.DataObject) -> None:
    _, layout, _, theirs = file
    where = data.draw(st.sampled_from(sorted(theirs)))
    spoiled = where + data.draw(st.sampled_from([".extra", "_2", ".0.weight"]))
    known = next(one for one in READABLE if one.name == layout)
    assume(spoiled.split(".")[0] in known.roots)
    content = {**theirs, spoiled: torch.zeros(3)}
    if layout == "relpos" and ".position." in f".{spoiled}":  # encodings may hold any tensor
        assert spoiled in convert(content)
        return
    with pytest.raises(TransferError, match="unknown to the layout") as refused:
        convert(content)
    assert spoiled in str(refused.value)


def target_of(config: Mapping[str, Any]) -> Target:
    return build_target({"type": "Model", "backbone": {"type": "RelPosSwin", **config}}, "c.py")


@STEADY
@given(file=files(), data=st.data())
def test_every_tensor_of_both_sides_is_accounted_for(file: File, data: st.DataObject) -> None:
    """Missing tensors, other dtypes, NaN and other shapes are problems with the key's name."""
    config, layout, ours, theirs = file
    target = target_of(config)
    types = {encoding["type"] for encoding in config["position"]}
    options = Options(
        grid=grid_of(config) if "AbsoluteTable" in types else None,
        window=config["window_size"] if "RelativeBias" in types else None,
        keep_final_norm=True,
    )
    how = data.draw(st.sampled_from(["sound", "missing", "integer", "nan", "longer"]))
    canonical = {old: new for new, old in read_weights(theirs).origin.items()}
    body = sorted(key for key in canonical if RELPOS.role_of(canonical[key])[0] != "stage_norm")
    key = data.draw(st.sampled_from(body))
    spoiled = dict(theirs)
    if how == "missing":
        del spoiled[key]
    elif how == "integer":
        spoiled[key] = spoiled[key].to(torch.int32)
    elif how == "nan":
        spoiled[key] = torch.full_like(spoiled[key], float("nan"))
    elif how == "longer":
        assume("qkv" not in canonical[key] or layout != "hf")
        spoiled[key] = torch.cat([spoiled[key]] * 2, dim=-1)
    try:
        report, state = fit_checkpoint(spoiled, target, options, "f.pth")
    except TransferError:
        if how == "sound":
            raise
        return
    names = [entry.key for entry in report.entries]
    wanted = {target.prefix + name for name in target.backbone.state_dict()}
    assert all(names.count(name) == 1 for name in wanted)
    taken = {entry.key for entry in report.of("loaded", "resized")}
    assert taken == state.keys() or report.of("problem")
    for old in spoiled:
        new = target.prefix + canonical.get(old, old)
        joined = layout == "hf" and ".attention." in old  # thirds are one tensor here
        assert old in names or new in wanted or joined, f"{old} is not in the report"
    if how == "sound":
        assert not report.of("problem"), report.problems()
        assert same_tensors({f"backbone.{key}": value for key, value in ours.items()}, state)
    else:
        assert report.of("problem")
        assert target.prefix + canonical[key] in names


@STEADY
@given(names=st.lists(st.text("abz019._", min_size=1, max_size=20), max_size=8))
def test_names_without_a_meaning_are_one_refusal(names: list[str]) -> None:
    with pytest.raises(TransferError, match=r"no Swin backbone|no tensors"):
        convert({name: torch.zeros(1) for name in names})


@STEADY
@given(file=files())
def test_index_buffers_are_never_read(file: File) -> None:
    config, _, ours, theirs = file
    broken = {
        key: torch.full_like(value, -7) if key.endswith("relative_position_index") else value
        for key, value in theirs.items()
    }
    dropped = [why for why in read_weights(broken).dropped.values() if why == BUFFER]
    assert len(dropped) == sum("relative_position_index" in key for key in theirs)
    assert same_tensors(convert(broken, grid=grid_of(config)), ours)
