"""Encodings of one type with other options are other encodings, whoever loads the file."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import Config
from torch import nn

from relpos_mm.engine import UserError
from relpos_mm.engine.weights import WeightSources
from relpos_mm.models import RelPosSwin
from relpos_mm.registry import POSITIONS
from relpos_mm.transfer import Options, Refused, transfer_file

from .helpers import backbone_config, build
from .test_refusals import write_config

# Options that change the function: type, of the file, of the config.
OTHERS = [
    ("AxialRope", {"theta": 50}, {"theta": 7}),
    ("AxialRope", {}, {"ref_size": 4}),
    ("MixedRope", {}, {"pairing": "half"}),
    ("MixedRope", {"axis_order": "yx"}, {}),
    ("ContextualRpe", {}, {"semantics": "paper"}),
    ("Disentangled", {}, {"p2c_offset": "paper"}),
    ("Disentangled", {"max_distance": 32}, {}),
    ("DirectedDistance", {}, {"slope": 0.5}),
    ("DecomposedBias", {}, {"mode": "centre"}),
    ("Sinusoid2d", {}, {"temperature": 100.0}),
    ("Sinusoid2d", {}, {"normalize": True}),
    ("RelativeBias", {}, {"content": False}),
    ("DynamicBias", {}, {"use_step": True}),
    ("TransformerXLRelative", {}, {"temperature": 100.0}),
]
# Spellings, sizes, and what matters in training alone.
SAME = [
    ("AxialRope", {"ref_size": (4, 4)}, {"ref_size": 4}),
    ("AxialRope", {"ref_size": (4, 5)}, {"ref_size": (4, 5)}),
    ("MixedRope", {"theta": 5.0}, {"random_axes": False}),
    (
        "ContextualRpe",
        {"mapping": "euc", "mode": "ctx"},
        {"mapping": "euclidean", "init": "xavier"},
    ),
    ("DecomposedBias", {}, {"factored": False, "zero_init": False}),
    ("SasaRelative", {}, {"shared_heads": True}),
    ("Sinusoid2d", {"form": "detr"}, {"form": "detr", "normalize": True}),
    ("ShawRelative", {"clip": 2}, {"clip": 3}),
]


def trained(position: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """A file as mmengine's training writes it: weights, and the config as Python text."""
    backbone = backbone_config(position=position, **changes)
    model = {"type": "ImageClassifier", "backbone": backbone}
    state = build(position=position, **changes).state_dict()
    weights = {f"backbone.{key}": value for key, value in state.items()}
    return {"state_dict": weights, "meta": {"cfg": Config({"model": model}).pretty_text}}


class Whole(nn.Module):
    """A model as far as its weights are judged."""

    def __init__(self, position: list[dict[str, Any]], **changes: Any) -> None:
        super().__init__()
        self.backbone: RelPosSwin = build(position=position, **changes)


@pytest.mark.parametrize(("name", "file", "config"), OTHERS)
def test_other_options_are_refused_on_every_path(
    tmp_path: Path, name: str, file: dict[str, Any], config: dict[str, Any]
) -> None:
    theirs, ours = ([{"type": name, **options}] for options in (file, config))
    content = trained(theirs)
    option = next(iter(file | config))
    with pytest.raises(UserError, match=r"encodings of x\.pth.*differ.*Use the config") as told:
        WeightSources(Whole(ours)).add_checkpoint("x.pth", content, whole=True)
    WeightSources(Whole(ours), allow_position_mismatch=True).add_checkpoint("x.pth", content, True)

    torch.save(content, tmp_path / "file.pth")
    path = write_config(tmp_path / "config.py", position=ours)
    with pytest.raises(Refused, match="encodings differ") as refused:
        transfer_file(tmp_path / "file.pth", None, path)
    if option != "content":  # its encoding has a short name of its own
        for side, value in (("file", file), ("config", config)):
            for message in (str(told.value), str(refused.value)):
                assert f"{option}=" in message
                assert not value or f"{option}={value[option]!r} in the {side}" in message
    allowed = Options(allow_encoding_mismatch=True)
    assert not transfer_file(tmp_path / "file.pth", None, path, allowed).position_transferred


@pytest.mark.parametrize(("name", "file", "config"), SAME)
def test_sizes_and_spellings_are_no_difference(
    tmp_path: Path, name: str, file: dict[str, Any], config: dict[str, Any]
) -> None:
    theirs, ours = ([{"type": name, **options}] for options in (file, config))
    content = trained(theirs)
    WeightSources(Whole(ours)).add_checkpoint("x.pth", content, whole=True)
    torch.save(content, tmp_path / "file.pth")
    path = write_config(tmp_path / "config.py", position=ours)
    assert transfer_file(tmp_path / "file.pth", None, path).position_transferred


def test_what_must_agree_is_no_size() -> None:
    for name, cls in POSITIONS.module_dict.items():
        compared = cls.options_of({"type": name}).keys()
        known = inspect.signature(cls).parameters.keys()
        assert cls.free <= known - compared, name
        sizes = {"embed_dims", "num_heads", "window_size", "grid_size", "clip", "bucket_size"}
        assert not sizes & compared, name


@pytest.mark.parametrize("name", ["DynamicBias", "LogCoordBias"])
def test_tables_of_a_trained_file_are_fitted(tmp_path: Path, name: str) -> None:
    """Its own config has the window as a list."""
    torch.save(trained([{"type": "RelativeBias"}]), tmp_path / "file.pth")
    path = write_config(tmp_path / "config.py", position=[{"type": name}])
    report = transfer_file(
        tmp_path / "file.pth", tmp_path / "out.pth", path, Options(fit_tables=True)
    )
    assert any("fitted to the table of window 4x4" in one.reason for one in report.of("resized"))
    assert report.position_transferred
