"""Transfer of every encoding: classifier to dense, both modes, and what must not be mixed up."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from relpos_mm.encodings import Grid, position_modules
from relpos_mm.encodings.disentangled import Disentangled
from relpos_mm.encodings.log_coord_bias import log_coords
from relpos_mm.encodings.mixed_rope import mixed_frequencies
from relpos_mm.models import RelPosSwin
from relpos_mm.transfer import Options, Report, TransferError, convert, detect, transfer_file
from relpos_mm.transfer.files import read_checkpoint
from relpos_mm.transfer.run import fit_checkpoint
from relpos_mm.transfer.target import Target, build_target

from .helpers import backbone_config, build, randomise, same_tensors

ENCODINGS: dict[str, list[dict[str, Any]]] = {
    "sin2d": [{"type": "Sinusoid2d"}],
    "abswin": [{"type": "AbsoluteWin"}],
    "logcpb": [{"type": "LogCoordBias", "cosine": True, "hidden": 16}],
    "dpb": [{"type": "DynamicBias"}],
    "decomposed": [{"type": "DecomposedBias"}],
    "sasa": [{"type": "SasaRelative"}],
    "rope_axial": [{"type": "AxialRope"}],
    "rope_mixed": [{"type": "MixedRope"}],
    "peg": [{"type": "ConvPosition"}],
    "lepe": [{"type": "LocalEnhanced"}],
    "irpe_k": [{"type": "ContextualRpe"}],
    "irpe_qkv": [{"type": "ContextualRpe", "rpe_on": "qkv"}],
    "shaw": [{"type": "ShawRelative", "values": True}],
    "huang": [{"type": "HuangRelative"}],
    "txl": [{"type": "TransformerXLRelative"}],
    "disentangled": [{"type": "Disentangled"}],
    "lookhere": [{"type": "DirectedDistance"}],
    "alibi": [{"type": "Alibi2d"}],
    "biasonly": [{"type": "RelativeBias", "content": False}],
}


SMALL = {
    key: value
    for key, value in backbone_config(out_indices=(1,)).items()
    if key not in ("type", "position")
}


def file_of(slug: str, stated: bool = True, **changes: Any) -> dict[str, Any]:
    """A classifier's checkpoint that says its own config, as training writes it."""
    config = backbone_config(position=ENCODINGS[slug]) | {"out_indices": (1,)} | changes
    model = randomise(RelPosSwin(**{k: v for k, v in config.items() if k != "type"}))
    state = model.state_dict()
    meta = {"cfg": f"model = dict(backbone={config!r})"} if stated else {}
    return {"state_dict": state, "meta": meta}


def target_of(slug: str | list[dict[str, Any]], **changes: Any) -> Target:
    position = ENCODINGS[slug] if isinstance(slug, str) else slug
    backbone = backbone_config(position=position) | {"embed_dims": 8} | changes
    return build_target({"type": "CascadeRCNN", "backbone": backbone}, "dense.py")


def run(file: Any, target: Target, **options: Any) -> tuple[Report, dict[str, Tensor]]:
    return fit_checkpoint(file, target, Options(**options), "file.pth")


def reference_windows(backbone: RelPosSwin) -> set[tuple[int, int]]:
    return {module.pretrained_window_size for module in position_modules(backbone).values()}


def bias_of(module: Any, table_module: Any, window: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The dense bias of two encodings on one window."""
    heads = table_module.relative_position_bias_table.shape[1]
    tokens = torch.zeros(1, heads, prod(window), 4)
    return tuple(m.bias(tokens, tokens, Grid(window), 0.5) for m in (module, table_module))


@pytest.mark.parametrize("mode", ["scale", "extend"])
@pytest.mark.parametrize("slug", ENCODINGS)
def test_every_encoding_moves_to_a_larger_window(slug: str, mode: str) -> None:
    file, target = file_of(slug), target_of(slug, window_size=(6, 6))
    report, state = run(file, target, mode=mode)
    assert report.problems() == ""
    assert report.position_transferred
    assert report.file_encoding == slug
    position = {key for key in target.backbone.state_dict() if ".position." in f".{key}"}
    assert position <= {key.removeprefix("backbone.") for key in state}
    own = {key.removeprefix("backbone."): value for key, value in state.items()}
    result = target.backbone.load_state_dict(own, strict=False)
    assert not result.unexpected_keys
    assert all(key.startswith("norm") for key in result.missing_keys)
    # Tables by offset or place grow with the window, everything else is carried bit for bit.
    grown = slug in ("abswin", "decomposed", "sasa", "biasonly")
    assert bool(report.of("resized")) is grown
    if not grown:
        file_position = {k: v for k, v in file["state_dict"].items() if ".position." in f".{k}"}
        assert same_tensors({k: own[k] for k in file_position}, file_position)


def test_reference_window_travels_with_the_weights(tmp_path: Path) -> None:
    small = file_of("logcpb", stated=False)
    torch.save(small, tmp_path / "cls.pth")
    assert read_checkpoint(tmp_path / "cls.pth")["state_dict"]._metadata
    config = tmp_path / "dense.py"
    backbone = backbone_config(position=ENCODINGS["logcpb"], window_size=(6, 6))
    config.write_text(f"model = dict(type='CascadeRCNN', backbone={backbone!r})\n")
    transfer_file(tmp_path / "cls.pth", tmp_path / "out.pth", config)
    dense = target_of("logcpb", window_size=(6, 6)).backbone
    written = torch.load(tmp_path / "out.pth", weights_only=True)["state_dict"]
    stripped = type(written)((k.removeprefix("backbone."), v) for k, v in written.items())
    stripped._metadata = {k.removeprefix("backbone."): v for k, v in written._metadata.items()}
    dense.load_state_dict(stripped, strict=False)
    assert reference_windows(dense) == {(4, 4)}


def test_stated_window_serves_files_without_a_note() -> None:
    file = file_of("logcpb")
    file["state_dict"] = dict(file["state_dict"])  # no metadata, as after a copy
    target = target_of("logcpb", window_size=(6, 6))
    run(file, target)
    assert {m.pretrained_window_size for m in position_modules(target.backbone).values()} == {
        (4, 4)
    }


def test_the_row_without_content_is_another_encoding() -> None:
    relonly = [{"type": "RelativeBias"}]
    report, _ = run(file_of("biasonly"), target_of(relonly))
    assert "the file has biasonly, the config wants relonly" in report.problems()
    assert not report.position_transferred
    public = convert(build(out_indices=(1,)).state_dict(), target="official")
    assert (
        "the file has relonly, the config wants biasonly"
        in run(public, target_of("biasonly"))[0].problems()
    )
    report, state = run(public, target_of("biasonly"), allow_encoding_mismatch=True)
    assert not report.of("problem")
    assert any("relative_position_bias_table" in key for key in state)  # the table is carried
    # A file of ours that states nothing cannot tell.
    assert run(file_of("biasonly", stated=False), target_of("biasonly"))[0].problems() == ""


def test_sides_of_irpe_are_told_by_names() -> None:
    bare = {"state_dict": file_of("irpe_k")["state_dict"], "meta": {}}
    report, _ = run(bare, target_of("irpe_qkv"))
    assert report.file_encoding == "irpe_k"
    assert "the config wants irpe_qkv" in report.problems()
    report, state = run(bare, target_of("irpe_qkv"), allow_encoding_mismatch=True)
    assert not report.of("problem")
    assert any("rpe_k." in key for key in state)
    assert all("no such table" in e.reason for e in report.of("new") if ".rpe_q." in e.key)


def test_log_buckets_keep_their_vectors() -> None:
    small, large = (Disentangled(embed_dims=8, num_heads=2, bucket_size=k) for k in (4, 6))
    state = dict(small.state_dict())
    records = large.transfer(state, "")
    assert {record.key for record in records} == {"rel_embeddings_h", "rel_embeddings_w"}
    table, old = state["rel_embeddings_h"], small.rel_embeddings_h
    assert torch.equal(table[2:10], old)  # bucket 0 is row k
    assert torch.equal(table[:2], old[:1].expand(2, -1))
    assert torch.equal(table[10:], old[-1:].expand(2, -1))
    with pytest.raises(ValueError, match=r"rel_embeddings_h: .* set embed_dims"):
        large.transfer({"rel_embeddings_h": torch.zeros(8, 4)}, "")


# ------------------------------------------------------------------------------------ conversions


@pytest.mark.parametrize("slug", ["dpb", "logcpb"])
def test_continuous_bias_is_fitted_to_a_table(slug: str) -> None:
    file = build(out_indices=(1,)).state_dict()
    position = [{"type": "DynamicBias", "hidden": 24}] if slug == "dpb" else ENCODINGS[slug]
    if slug == "logcpb":
        position = [{"type": "LogCoordBias", "hidden": 128}]
    refused, _ = run(file, target_of(position))
    assert "--fit-tables" in refused.problems()
    target = target_of(position)
    report, state = run(file, target, fit_tables=True)
    assert report.problems() == ""
    assert report.position_transferred
    target.backbone.load_state_dict(
        {key.removeprefix("backbone."): value for key, value in state.items()}, strict=False
    )
    fitted = position_modules(target.backbone)
    for path, module in position_modules(build(out_indices=(1,))).items():
        near = f"{path.rpartition('.')[0]}.{'dynamic_bias' if slug == 'dpb' else 'log_coord_bias'}"
        found, wanted = bias_of(fitted[near], module, (4, 4))
        table = wanted - wanted.mean((2, 3), keepdim=True)
        error = (found - wanted) - (found - wanted).mean((2, 3), keepdim=True)
        assert error.std() < 0.3 * table.std()  # of noise; trained tables are smoother
    assert all("rms error" in entry.reason for entry in report.of("resized"))
    assert sum("was fitted to it" in entry.reason for entry in report.of("dropped")) == 3


def test_a_table_of_other_heads_is_refused() -> None:
    target = target_of("dpb", num_heads=(1, 2))
    report, _ = run(build(out_indices=(1,)).state_dict(), target, fit_tables=True)
    assert "(49, 2) in the file, (49, 1) for a window of 4x4 in the config" in report.problems()


def test_plain_absolute_becomes_absolute_win() -> None:
    plain = build("absonly", out_indices=(1,))
    flat = convert(plain.state_dict(), target="official")
    exact = [{"type": "AbsoluteWin", "global_size": (8, 8)}]
    assert "--split-absolute" in run(flat, target_of(exact))[0].problems()
    target = target_of(exact)
    report, state = run(flat, target, split_absolute=True)
    assert report.problems() == ""
    assert report.position_transferred
    assert all("the sum is kept" in entry.reason for entry in report.of("resized"))
    own = {key.removeprefix("backbone."): value for key, value in state.items()}
    target.backbone.load_state_dict(own, strict=False)
    x = torch.zeros(1, 8, 8, 8)
    sums = [
        next(iter(model.position.values())).embed(x, Grid((8, 8)))
        for model in (plain, target.backbone)
    ]
    torch.testing.assert_close(*sums)
    report, _ = run(flat, target_of("abswin"), split_absolute=True)
    assert "the sum changes by" in report.of("resized")[0].reason
    assert "global_size=(8, 8) keeps it" in report.of("resized")[0].reason


# ------------------------------------------------------------------------------- published networks


def swin_v2(**names: str) -> dict[str, Tensor]:
    """Names and shapes of a small Swin V2 with windows of 4, pre-trained with 3."""
    state: dict[str, Tensor] = {"patch_embed.proj.weight": torch.zeros(8, 3, 4, 4)}
    for i, j, heads in ((0, 0, 2), (1, 0, 4), (1, 1, 4)):
        at = f"layers.{i}.blocks.{j}.attn."
        state |= {
            f"{at}logit_scale": torch.full((heads, 1, 1), float(i + j)),
            f"{at}cpb_mlp.0.weight": torch.randn(16, 2),
            f"{at}cpb_mlp.0.bias": torch.randn(16),
            f"{at}cpb_mlp.2.weight": torch.randn(heads, 16),
            f"{at}relative_coords_table": log_coords((4, 4), (4, 4), (3, 3))[0].view(1, 7, 7, 2),
            f"{at}q_bias": torch.zeros(8 * 2**i),
        }
    return state


def test_position_parameters_of_swin_v2() -> None:
    file = swin_v2()
    for use in (detect, convert):
        with pytest.raises(TransferError, match=r"Swin V2 weights .*15 position .* LogCoordBias"):
            use(file)
    target = target_of("logcpb")
    report, state = run({"model": file}, target, position_only=True)
    assert report.problems() == ""
    at = "backbone.stages.1.blocks.1.attn.position.log_coord_bias"
    assert torch.equal(
        state[f"{at}.cpb_mlp.0.weight"], file["layers.1.blocks.1.attn.cpb_mlp.0.weight"]
    )
    assert torch.equal(state[f"{at}.logit_scale"], torch.full((4, 1, 1), 2.0))
    assert len(state) == 12
    assert {m.pretrained_window_size for m in position_modules(target.backbone).values()} == {
        (3, 3)
    }
    assert len(report.of("dropped")) == 7
    report, _ = run(file, target_of("dpb"), position_only=True)
    assert "the config has no LogCoordBias, which a Swin V2 file can start" in report.problems()
    report, _ = run(file, target_of("logcpb", depths=(1, 3)), position_only=True)
    assert "missing in the file; see depths" in report.problems()


@pytest.mark.parametrize("window", ["pos_embed_win", "trunk.pos_embed_window"])
def test_position_parameters_of_hiera(window: str) -> None:
    whole = window.replace("_win", "").replace("dow", "")
    file = {
        window: torch.randn(1, 8, 4, 4),
        whole: torch.randn(1, 8, 7, 7),
        "blocks.0.attn.qkv.weight": torch.zeros(24, 8),
    }
    with pytest.raises(TransferError, match=r"Hiera weights .*2 position .* AbsoluteWin"):
        detect(file)
    report, state = run(file, target_of("abswin"), position_only=True)
    assert report.problems() == ""
    ours = "backbone.position.absolute_win."
    assert torch.equal(state[f"{ours}pos_embed_window"], file[window])
    assert state[f"{ours}pos_embed"].shape == (1, 8, 14, 14)
    with pytest.raises(TransferError, match=r"file.pth: --position-only is for Swin V2 and Hiera"):
        run(build().state_dict(), target_of("abswin"), position_only=True)
    with pytest.raises(TransferError, match="--keep-head, --fit-tables: has no effect"):
        run(file, target_of("abswin"), position_only=True, fit_tables=True, keep_head=True)


def rope_vit(mixed: bool) -> dict[str, Tensor]:
    """Swin of rope-vit: official names, frequencies and coordinates in every block."""
    body = randomise(RelPosSwin(**{**SMALL, "position": [], "num_heads": (1, 2)})).state_dict()
    state = convert(body, target="official")
    for i, j in ((0, 0), (1, 0), (1, 1)):
        turns = torch.rand(i + 1) if mixed else torch.zeros(i + 1)
        theta = 10.0 if mixed else 50.0
        state[f"layers.{i}.blocks.{j}.attn.rope_freqs"] = mixed_frequencies(8, theta, turns)
        state[f"layers.{i}.blocks.{j}.attn.rope_t_x"] = torch.zeros(16)
    return state


def test_rotary_swin_of_rope_vit() -> None:
    mixed = rope_vit(mixed=True)
    assert detect(mixed) == "official"
    heads = {"num_heads": (1, 2)}
    report, state = run({"model": mixed}, target_of("rope_mixed", **heads))
    assert report.problems() == ""
    key = "stages.1.blocks.1.attn.position.mixed_rope.rope_freqs"
    assert torch.equal(state[f"backbone.{key}"], mixed["layers.1.blocks.1.attn.rope_freqs"])
    back = convert(convert(mixed), target="official")
    assert same_tensors(back, {k: v for k, v in mixed.items() if "rope_t" not in k})

    axial = rope_vit(mixed=False)
    position = [{"type": "AxialRope", "theta": 50.0}]
    report, _ = run({"model": axial}, target_of(position, **heads))
    assert report.problems() == ""
    assert report.file_encoding == "rope_axial"
    assert any("theta 50" in entry.reason for entry in report.of("dropped"))
    report, _ = run({"model": axial}, target_of("rope_axial", **heads))
    assert "theta=50.0 in the file, theta=100.0 in the config" in report.problems()
