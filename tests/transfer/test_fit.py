"""What a transfer loads, resizes, starts anew and leaves out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from relpos_mm.encodings import Grid
from relpos_mm.encodings.resize import resize_absolute, resize_bias_table
from relpos_mm.transfer import Options, Report, TransferError, convert
from relpos_mm.transfer.run import fit_checkpoint
from relpos_mm.transfer.target import Target, build_target

from .helpers import backbone_config, build, same_tensors

TABLE = "stages.1.blocks.1.attn.position.relative_bias.relative_position_bias_table"
ABSOLUTE = "position.absolute_table.absolute_pos_embed"


def dense(encoding: str = "relonly", **changes: Any) -> Target:
    model = {"type": "CascadeRCNN", "backbone": backbone_config(encoding, **changes)}
    return build_target(model, "dense.py")


def classifier_target(encoding: str = "relonly", **changes: Any) -> Target:
    changes = {"out_indices": (1,), "small_map": "shrink"} | changes
    model = {
        "type": "mmpretrain.ImageClassifier",
        "backbone": backbone_config(encoding, **changes),
        "head": {"type": "LinearClsHead", "num_classes": 5},
    }
    return build_target(model, "cls.py")


def classifier_file(encoding: str = "relonly", **changes: Any) -> dict[str, Tensor]:
    """A classifier's checkpoint as this project's training saves it."""
    changes = {"out_indices": (1,), "small_map": "shrink"} | changes
    state = build(encoding, **changes).state_dict()
    head = {"head.fc.weight": torch.randn(5, 16), "head.fc.bias": torch.randn(5)}
    return {f"backbone.{key}": value for key, value in state.items()} | head


def run(file: Any, target: Target, **options: Any) -> tuple[Report, dict[str, Tensor]]:
    return fit_checkpoint(file, target, Options(**options), "file.pth")


def keys(report: Report, *outcomes: Any) -> set[str]:
    return {entry.key for entry in report.of(*outcomes)}


@pytest.mark.parametrize("encoding", ["noenc", "absonly", "relonly", "absrel"])
def test_own_classifier_fills_a_dense_model(encoding: str) -> None:
    """B023: everything but the output norms, bit for bit, with no manual step."""
    file, target = classifier_file(encoding), dense(encoding)
    report, state = run({"state_dict": file, "meta": {}}, target)
    assert not report.of("problem", "resized")
    assert keys(report, "new") == {
        f"backbone.norm{i}.{p}" for i in (0, 1) for p in ("weight", "bias")
    }
    assert keys(report, "dropped") == {"head.fc.weight", "head.fc.bias"}
    body = {
        key: value for key, value in file.items() if "backbone.norm" not in key and key[0] == "b"
    }
    assert same_tensors(state, body)
    assert report.summary.startswith(f"loaded {len(body)} of {len(body) + 4} backbone tensors ")
    loaded = target.backbone.load_state_dict(
        {key.removeprefix("backbone."): value for key, value in state.items()}, strict=False
    )
    assert len(loaded.missing_keys) == 4
    assert loaded.unexpected_keys == []


def test_every_tensor_of_both_sides_is_listed_once() -> None:
    """B024."""
    file = convert(build("absrel", out_indices=(1,)).state_dict(), target="official")
    file |= {
        "head.weight": torch.zeros(5, 16),
        "layers.1.blocks.1.attn_mask": torch.zeros(4, 16, 16),
    }
    target = dense("absrel")
    report, _ = run({"model": file}, target)
    listed = [entry.key for entry in report.entries]
    assert len(listed) == len(set(listed))
    assert {f"backbone.{key}" for key in target.backbone.state_dict()} <= set(listed)
    carried = len(report.of("loaded", "resized"))
    assert carried + len(report.of("dropped")) == len(file)
    assert not report.of("problem")


def test_one_missing_table_is_the_only_problem() -> None:
    """B024's second half."""
    file = classifier_file()
    del file[f"backbone.{TABLE}"]
    report, _ = run(file, dense())
    assert keys(report, "problem") == {f"backbone.{TABLE}"}
    assert "missing in the file" in report.of("problem")[0].reason


@pytest.mark.parametrize("layout", ["official", "mm", "timm", "torchvision", "hf"])
@pytest.mark.parametrize("window", [7, 2])
def test_tables_are_resized_from_every_layout(layout: str, window: int) -> None:
    """B001, B026, B027."""
    ours = build(out_indices=(1,)).state_dict()
    target = dense(window_size=(window, window))
    report, state = run(convert(ours, target=layout), target)
    assert not report.of("problem")
    assert len(keys(report, "resized")) == 3
    expected = resize_bias_table(ours[TABLE], (4, 4), (window, window))
    assert torch.equal(state[f"backbone.{TABLE}"], expected)
    entry = next(entry for entry in report.entries if entry.key == f"backbone.{TABLE}")
    rows = (2 * window - 1) ** 2
    assert f"(49, 4) -> ({rows}, 4), window 4x4 -> {window}x{window}" in entry.reason
    _, extended = run(convert(ours, target=layout), target, mode="extend")
    assert not torch.equal(extended[f"backbone.{TABLE}"], expected)


def test_small_tables_of_a_classifier_grow() -> None:
    """A classifier's last stage may have a smaller window than its config says."""
    changes = {"window_size": (8, 8), "out_indices": (1,), "small_map": "shrink"}
    file = build(**changes).state_dict()
    assert file[TABLE].shape == (49, 4)
    report, state = run(file, dense(window_size=(8, 8)))
    assert len(keys(report, "resized")) == 2
    expected = resize_bias_table(file[TABLE], (4, 4), (8, 8))
    assert torch.equal(state[f"backbone.{TABLE}"], expected)


def test_windows_that_are_not_square_are_told() -> None:
    file = build(window_size=(4, 7), out_indices=(1,)).state_dict()
    report, _ = run(file, dense())
    assert len(report.of("problem")) == 3
    assert "--window" in report.problems()
    report, _ = run(file, dense(), window=(5, 5))
    assert "(5, 5) is the window of none of the file's tables" in report.problems()
    report, state = run(file, dense(), window=(4, 7))
    assert not report.of("problem")
    expected = resize_bias_table(file[TABLE], (4, 7), (4, 4))
    assert torch.equal(state[f"backbone.{TABLE}"], expected)


def test_the_files_own_config_tells_its_window() -> None:
    """(4, 7) and (7, 4) have the same number of rows."""
    file = build(window_size=(4, 7), out_indices=(1,)).state_dict()
    text = f"model = dict(backbone={backbone_config(window_size=(4, 7))!r})"
    target = dense(window_size=(7, 4))
    report, state = run({"state_dict": file, "meta": {"cfg": text}}, target)
    assert len(keys(report, "resized")) == 3
    expected = resize_bias_table(file[TABLE], (4, 7), (7, 4))
    assert torch.equal(state[f"backbone.{TABLE}"], expected)


@pytest.mark.parametrize("layout", ["official", "mm", "hf"])
def test_flat_absolute_embedding_of_the_configs_size(layout: str) -> None:
    ours = build("absrel", out_indices=(1,)).state_dict()
    flat = convert(ours, target=layout)
    report, state = run(flat, dense("absrel"))
    assert not report.of("problem", "resized")
    assert torch.equal(state[f"backbone.{ABSOLUTE}"], ours[ABSOLUTE])


def test_flat_absolute_embedding_of_another_size() -> None:
    ours = build("absonly", out_indices=(1,)).state_dict()
    flat = convert(ours, target="official")
    target = dense("absonly", pretrain_img_size=(48, 40))
    report, _ = run(flat, target)
    assert "64 rows, but a grid of 12x10" in report.problems()
    assert "--grid" in report.problems()
    report, state = run(flat, target, grid=(8, 8))
    assert keys(report, "resized") == {f"backbone.{ABSOLUTE}"}
    assert torch.equal(state[f"backbone.{ABSOLUTE}"], resize_absolute(ours[ABSOLUTE], (12, 10)))
    report, other = run(flat, target, grid=(4, 16))
    assert not torch.equal(other[f"backbone.{ABSOLUTE}"], state[f"backbone.{ABSOLUTE}"])
    stated = {"meta": {"cfg": f"model = dict(backbone={backbone_config('absonly')!r})"}}
    _, told = run({"model": flat} | stated, target)
    assert torch.equal(told[f"backbone.{ABSOLUTE}"], state[f"backbone.{ABSOLUTE}"])


def test_class_rows_are_cut_as_declared() -> None:
    """B108: rows of class or register tokens."""
    ours = build("absonly", out_indices=(1,)).state_dict()
    flat = convert(ours, target="hf")
    key = "embeddings.position_embeddings"
    flat[key] = torch.cat([torch.zeros(1, 2, 8), flat[key]], 1)
    assert "66 rows" in run(flat, dense("absonly"))[0].problems()
    _, state = run(flat, dense("absonly"), prefix_tokens=2)
    assert torch.equal(state[f"backbone.{ABSOLUTE}"], ours[ABSOLUTE])


def test_a_grid_that_contradicts_the_shape_is_refused() -> None:
    report, _ = run(build("absonly").state_dict(), dense("absonly"), grid=(4, 16))
    assert "--grid (4, 16) contradicts the shape (1, 8, 8, 8)" in report.problems()


def test_final_norm_of_a_classifier() -> None:
    file = classifier_file()
    _, state = run(file, dense())
    assert "backbone.norm1.weight" not in state
    report, state = run(file, dense(), keep_final_norm=True)
    assert torch.equal(state["backbone.norm1.weight"], file["backbone.norm1.weight"])
    assert keys(report, "new") == {"backbone.norm0.weight", "backbone.norm0.bias"}
    report, state = run(file, classifier_target())
    assert torch.equal(state["backbone.norm1.weight"], file["backbone.norm1.weight"])
    assert not report.of("new")


def test_both_sources_of_a_final_norm_are_treated_alike() -> None:
    """Official files say ``norm``, mmpretrain ``norm3``, which mmdet loads by its name."""
    ours = build(out_indices=(1,)).state_dict()
    outcomes = [run(convert(ours, target=name), dense())[1] for name in ("official", "mm")]
    assert same_tensors(*outcomes)
    assert not any("norm1.weight" in key and "blocks" not in key for key in outcomes[0])


def test_dense_norms_go_to_dense_models_only() -> None:
    file = convert(build().state_dict(), target="mm")
    report, state = run({"state_dict": file}, dense())
    assert len(state) == report.model_tensors
    report, state = run({"state_dict": file}, classifier_target())
    assert keys(report, "new") == {"backbone.norm1.weight", "backbone.norm1.bias"}
    assert {"norm0.weight", "norm1.bias"} <= keys(report, "dropped")


def test_stages_behind_the_last_output_are_left_out() -> None:
    report, state = run(build().state_dict(), dense(out_indices=(0,)))
    assert not report.of("problem")
    assert not any("stages.1" in key or "downsample" in key for key in state)
    reasons = {entry.reason for entry in report.of("dropped")}
    assert "behind the last output of the config (out_indices)" in reasons


def test_heads_are_carried_on_request() -> None:
    file = classifier_file()
    report, state = run(file, classifier_target(), keep_head=True)
    assert torch.equal(state["head.fc.weight"], file["head.fc.weight"])
    assert "backbone and head tensors" in report.summary
    other = classifier_target()
    other.num_classes = 7
    assert "set model.head.num_classes" in run(file, other, keep_head=True)[0].problems()
    assert "config is no classifier" in run(file, dense(), keep_head=True)[0].problems()


def test_averaged_weights() -> None:
    raw, average = classifier_file(), classifier_file()
    average = {key: value + 1 for key, value in average.items()}
    name = "backbone.stages.0.blocks.0.attn.qkv.bias"
    file = {"state_dict": raw, "state_dict_ema": average}
    report, state = run(file, dense())
    assert torch.equal(state[name], raw[name])
    assert "state_dict_ema" in keys(report, "dropped")
    assert torch.equal(run(file, dense(), ema=True)[1][name], average[name])
    # mmengine saves the average under state_dict and the raw weights beside it
    swapped = {"state_dict": average, "ema_state_dict": {"module." + k: v for k, v in raw.items()}}
    assert torch.equal(run(swapped, dense(), ema=True)[1][name], average[name])
    assert torch.equal(run(swapped, dense())[1][name], average[name])
    with pytest.raises(TransferError, match=r"file.pth: no averaged weights"):
        run(raw, dense(), ema=True)


def test_b006_a_flat_embedding_serves_pictures_of_any_size() -> None:
    """One shape everywhere, and the file's own values at the pre-training size."""
    official = convert(build("absonly", out_indices=(1,)).state_dict(), target="official")
    flat = official["absolute_pos_embed"]
    assert flat.shape == (1, 64, 8)
    _, state = run({"model": official}, dense("absonly"))
    state = {key.removeprefix("backbone."): value for key, value in state.items()}
    model = build("absonly")
    model.load_state_dict(state, strict=False)
    encoding = model.position["absolute_table"]
    added = encoding.embed(torch.zeros(1, 8, 8, 8), Grid((8, 8)))
    assert torch.equal(added.flatten(1, 2), flat)
    for size in ((32, 32), (48, 64), (33, 65), (4, 96)):
        outs = model(torch.randn(1, 3, *size))
        assert outs[0].shape[2:] == (-(-size[0] // 4), -(-size[1] // 4))
        assert all(out.isfinite().all() for out in outs)
    again = build("absonly")
    again.load_state_dict(model.state_dict())
    assert encoding.absolute_pos_embed.shape == (1, 8, 8, 8)
    assert same_tensors(again.state_dict(), model.state_dict())
