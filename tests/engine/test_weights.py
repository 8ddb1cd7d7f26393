"""Every way of loading weights is counted; a load that does nothing is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from relpos_mm.engine import UserError
from relpos_mm.engine.weights import SCRATCH, WeightSources, match

from .toys import ABSREL, RELONLY, ToyModel, log_of, toy_runner


def save(path: Path, state: dict[str, Any], meta: dict[str, Any] | None = None) -> str:
    torch.save({"state_dict": state, "meta": meta or {}}, path)
    return str(path)


def backbone(model: ToyModel, prefix: str = "backbone.") -> dict[str, torch.Tensor]:
    return {prefix + key: value for key, value in model.backbone.state_dict().items()}


def test_load_from_is_counted_and_arrives(tmp_path: Path) -> None:
    donor = ToyModel()
    path = save(
        tmp_path / "w.pth",
        backbone(donor),
        {"transfer": {"source": "swin.pth"}},
    )
    runner = toy_runner(
        tmp_path / "run", load_from=path, train_cfg={"by_epoch": True, "max_epochs": 0}
    )
    runner.train()
    total = len(donor.backbone.state_dict())
    log = log_of(runner)
    assert (
        f"weights of backbone  {total} of {total} tensors from {path} (made from swin.pth)" in log
    )
    assert f"weights of head      2 of 2 tensors from {SCRATCH}" in log
    for key, value in backbone(donor).items():
        assert torch.equal(runner.model.state_dict()[key], value)


def test_init_cfg_is_counted(tmp_path: Path) -> None:
    donor = ToyModel()
    path = save(tmp_path / "w.pth", backbone(donor, ""))
    model = {"type": "ToyModel", "init_cfg": {"type": "Pretrained", "checkpoint": path}}
    runner = toy_runner(
        tmp_path / "run", model=model, train_cfg={"by_epoch": True, "max_epochs": 0}
    )
    runner.train()
    total = len(donor.backbone.state_dict())
    assert f"weights of backbone  {total} of {total} tensors from {path}\n" in log_of(runner)


def test_a_file_of_another_layout_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "official.pth", {"layers.0.blocks.0.attn.qkv.weight": torch.ones(2)})
    runner = toy_runner(tmp_path / "run", load_from=path)
    with pytest.raises(UserError, match=r"fills 0 of 35 tensors of backbone.*layers\.0.*transfer"):
        runner.train()


def test_a_head_alone_is_not_enough(tmp_path: Path) -> None:
    sources = WeightSources(ToyModel())
    with pytest.raises(UserError, match="fills 0 of"):
        sources.add_checkpoint("x.pth", {"state_dict": {"head.bias": torch.ones(2)}}, False)


def test_init_cfg_that_matches_nothing_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "w.pth", {"backbone.stages.0.x": torch.ones(1)})
    model = ToyModel(init_cfg={"type": "Pretrained", "checkpoint": path})
    with pytest.raises(UserError, match="fills 0 of 35 tensors of backbone"):
        WeightSources(model).add_init_cfgs(verify=True)


def test_init_cfg_whose_values_did_not_arrive_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "w.pth", backbone(ToyModel(), ""))
    model = ToyModel(init_cfg={"type": "Pretrained", "checkpoint": path})
    with pytest.raises(UserError, match="values are not in the model"):
        WeightSources(model).add_init_cfgs(verify=True)


def test_two_files_for_one_part_are_refused(tmp_path: Path) -> None:
    model = ToyModel(init_cfg={"type": "Pretrained", "checkpoint": "inner.pth"})
    model.init_cfg = {"type": "Pretrained", "checkpoint": "outer.pth"}
    with pytest.raises(UserError, match="'backbone' and 'the model' around it"):
        WeightSources(model).add_init_cfgs(verify=True)


@pytest.mark.parametrize(("mine", "theirs"), [(RELONLY, ABSREL), (ABSREL, RELONLY), (RELONLY, [])])
def test_another_encoding_is_refused_unless_allowed(
    mine: list[dict[str, Any]], theirs: list[dict[str, Any]]
) -> None:
    model = ToyModel(mine)
    content = {"state_dict": backbone(ToyModel(theirs))}
    with pytest.raises(UserError, match=r"encodings of x\.pth and of this config differ.*position"):
        WeightSources(model).add_checkpoint("x.pth", content, False)
    allowed = WeightSources(model, allow_position_mismatch=True)
    allowed.add_checkpoint("x.pth", content, False)
    assert any("encoding differs, not transferred" in note for note in allowed.notes)
    agreed = {**content, "meta": {"transfer": {"source": "a", "encoding_mismatch_allowed": True}}}
    WeightSources(model).add_checkpoint("x.pth", agreed, False)


def test_other_window_and_grid_count_as_resized() -> None:
    small, large = ToyModel(ABSREL), ToyModel(ABSREL, window_size=(4, 4), pretrain_img_size=32)
    found = match(large.state_dict(), small.state_dict())
    assert len(found.resized) == 3
    assert not found.missing + found.unexpected + found.wrong_shape
    sources = WeightSources(large)
    sources.add_checkpoint("x.pth", {"state_dict": small.state_dict()}, True)
    assert sum(sources.by_part()["backbone"].values()) == len(large.backbone.state_dict())
    assert SCRATCH not in sources.by_part()["backbone"]


def test_a_test_of_a_partly_random_model_is_refused() -> None:
    model = ToyModel()
    state = model.state_dict()
    del state["head.bias"]
    with pytest.raises(UserError, match=r"1 of 42 tensors.*head\.bias"):
        WeightSources(model).add_checkpoint("x.pth", {"state_dict": state}, True)
    WeightSources(model).add_checkpoint("x.pth", {"state_dict": state}, False)


def test_ddp_names_are_understood() -> None:
    model = ToyModel()
    state = {f"module.{key}": value for key, value in model.state_dict().items()}
    sources = WeightSources(model)
    sources.add_checkpoint("x.pth", {"state_dict": state}, True)
    assert sources.by_part()["head"] == {"x.pth": 2}


def test_b029_other_widths_and_depths_are_refused() -> None:
    """mmengine would leave such tensors at random values with a line in the log."""
    model = ToyModel()
    wide = {"state_dict": backbone(ToyModel(mlp_ratio=2.0))}
    with pytest.raises(UserError, match=r"tensors of backbone have another shape.*mlp_ratio"):
        WeightSources(model).add_checkpoint("x.pth", wide, False)
    shallow = {"state_dict": backbone(ToyModel())}
    with pytest.raises(UserError, match=r"tensors of backbone are not in it.*blocks\.1.*depths"):
        WeightSources(ToyModel(depths=(1, 2))).add_checkpoint("x.pth", shallow, False)
    dense = ToyModel(out_indices=(0, 1))  # its first output norm is new
    sources = WeightSources(dense)
    sources.add_checkpoint("x.pth", {"state_dict": backbone(model)}, False)
    (note,) = sources.notes
    assert "backbone.norm1.weight, backbone.norm1.bias from the file" in note
    assert "2 start at weight 1" in note


@pytest.mark.parametrize("told_by", ["cfg", "transfer"])
@pytest.mark.parametrize(
    ("mine", "theirs", "slugs"),
    [
        ([{"type": "Sinusoid2d"}], [], "noenc there, sin2d here"),
        ([], [{"type": "Sinusoid2d"}], "sin2d there, noenc here"),
        (RELONLY, [{"type": "RelativeBias", "content": False}], "biasonly there, relonly here"),
    ],
)
def test_b005_encodings_that_no_tensor_shows(
    mine: list[dict[str, Any]], theirs: list[dict[str, Any]], slugs: str, told_by: str
) -> None:
    told = {"type": "RelPosSwin", "position": theirs}
    meta: dict[str, Any] = {"cfg": f"model = dict(backbone={told!r})"}
    if told_by == "transfer":
        meta = {"transfer": {"backbone": told}}
    content = {"state_dict": backbone(ToyModel(theirs)), "meta": meta}
    model = ToyModel(mine)
    for testing in (False, True):
        with pytest.raises(UserError, match=slugs):
            WeightSources(model).add_checkpoint("x.pth", content, testing)
    allowed = WeightSources(model, allow_position_mismatch=True)
    allowed.add_checkpoint("x.pth", content, False)
    assert allowed.position_transferred is False
    WeightSources(ToyModel(theirs)).add_checkpoint("x.pth", content, False)


def test_b105_load_from_counts_over_init_cfg(tmp_path: Path) -> None:
    """The later file is the one that the log names."""
    first = save(tmp_path / "first.pth", backbone(ToyModel(), ""))
    model = ToyModel(init_cfg={"type": "Pretrained", "checkpoint": first})
    sources = WeightSources(model)
    later = {"state_dict": backbone(ToyModel())}
    sources.add_checkpoint("later.pth", later, False)
    sources.add_init_cfgs(verify=False)
    assert set(sources.by_part()["backbone"]) == {"later.pth"}
