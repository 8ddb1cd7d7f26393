"""Decomposed relative position of MViTv2 and ViTDet."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from relpos_mm.encodings import DecomposedBias, Grid
from relpos_mm.models import attend

from .layers import tokens_of
from .reference import FILES, error, read

FOLDER = FILES / "encodings"
TABLES = sorted([*FOLDER.glob("decomposed_*.npz"), *FOLDER.glob("mvitv2_*.npz")])


def loaded(rows: Tensor, columns: Tensor, heads: int = 1, **options: object) -> DecomposedBias:
    window = ((len(rows) + 1) // 2, (len(columns) + 1) // 2)
    width = heads * rows.shape[1]
    encoding = DecomposedBias(embed_dims=width, num_heads=heads, window_size=window, **options)
    encoding.load_state_dict({"rel_pos_h": rows, "rel_pos_w": columns})
    return encoding.double()


def dense(term: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    return term[0] @ term[1].transpose(-2, -1) if isinstance(term, tuple) else term


@pytest.mark.parametrize("factored", [True, False])
@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_term_equals_the_public_one(path: Path, factored: bool) -> None:
    """Pooled queries and keys, stretched tables, and a class token whose row stays untouched."""
    data = read(path)
    height, width, *keys = data["meta_q_k"].tolist()
    grid = Grid((height, width), tuple(keys))
    q = data["q"].double().view(data["q"].shape[0], -1, *data["q"].shape[-2:])
    prefix = q.shape[2] - height * width
    encoding = loaded(data["rel_h"], data["rel_w"], factored=factored)
    term = encoding.bias(q[:, :, prefix:], q, grid, q.shape[-1] ** -0.5)
    assert isinstance(term, tuple) == factored
    expected = (data["logits"].double() - data["logits_content"].double()).view(
        *q.shape[:2], -1, data["logits"].shape[-1]
    )
    term = F.pad(dense(term), (prefix, 0, prefix, 0))
    every = -(-term.shape[2] // expected.shape[2])  # some files keep every ninth query only
    tolerance = 1e-9 if data["logits"].dtype == torch.float64 else 1e-5
    assert error(term[:, :, ::every], expected) < tolerance


@pytest.mark.parametrize("impl", ["eager", "fused"])
def test_attention_equals_vitdet(impl: str) -> None:
    data = read(FOLDER / "vitdet_attn_7x7.npz")
    encoding = loaded(data["w.rel_pos_h"], data["w.rel_pos_w"], heads=2)
    x = data["x"].double().flatten(1, 2)
    qkv = F.linear(x, data["w.qkv.weight"].double(), data["w.qkv.bias"].double())
    q, k, v = qkv.unflatten(2, (3, 2, -1)).permute(2, 0, 3, 1, 4)
    out = tokens_of(attend(q, k, v, [encoding], Grid((7, 7)), impl=impl))
    out = F.linear(out, data["w.proj.weight"].double(), data["w.proj.bias"].double())
    assert error(out.view_as(data["out"]), data["out"]) < 1e-9


def test_flipped_tables_are_botnets() -> None:
    data = read(FOLDER / "botnet_rel_6x6.npz")
    encoding = loaded(data["height_rel"].flip(0), data["width_rel"].flip(0))
    q = data["q"].double()[:, None]
    term = dense(encoding.bias(q, q, Grid((6, 6)), 1.0))[:, 0]
    assert error(term, data["rel_logits"].double()) < 1e-5


@pytest.mark.parametrize("keys", [(8, 8), (4, 8)])
def test_both_modes_agree_on_the_tables_own_grid(keys: tuple[int, int]) -> None:
    torch.manual_seed(0)
    rows, columns = torch.randn(15, 4), torch.randn(15, 4)
    q = torch.randn(1, 2, 64, 4, dtype=torch.float64)
    both = [
        dense(loaded(rows, columns, 2, mode=mode).bias(q, q, Grid((8, 8), keys), 1.0))
        for mode in ("interpolate", "centre")
    ]
    assert torch.equal(*both)


def test_only_the_centre_mode_is_a_function_of_the_offset() -> None:
    torch.manual_seed(0)
    rows, columns = torch.randn(13, 4), torch.randn(13, 4)
    q = torch.randn(1, 1, 1, 4, dtype=torch.float64)
    for mode, same in (("centre", True), ("interpolate", False)):
        encoding = loaded(rows, columns, mode=mode)
        assert encoding.padding == ("safe" if same else "unsafe")
        sizes = ((5, 6), (9, 11))
        terms = [
            dense(encoding.bias(q.expand(1, 1, h * w, 4), q, Grid((h, w)), 1.0)).view(h, w, h, w)
            for h, w in sizes
        ]
        assert torch.allclose(terms[0], terms[1][:5, :6, :5, :6]) == same


def test_transfer_stretches_or_extends() -> None:
    source = loaded(torch.arange(13.0)[:, None], torch.arange(5.0)[:, None])
    target = DecomposedBias(embed_dims=1, num_heads=1, window_size=(9, 2))
    state = dict(source.state_dict())
    records = target.transfer(state, "", mode="extend")
    assert [record.key for record in records] == ["rel_pos_h", "rel_pos_w"]
    assert state["rel_pos_h"][:, 0].tolist() == [0, 0, 0, *range(13), 12, 12, 12][1:-1]
    assert state["rel_pos_w"][:, 0].tolist() == [1, 2, 3]
    state = dict(source.state_dict())
    target.transfer(state, "", mode="scale")
    line = source.rel_pos_h.t()[None]
    assert torch.equal(state["rel_pos_h"].t()[None], F.interpolate(line, size=17, mode="linear"))


@pytest.mark.parametrize("shape", [(12, 1), (13, 2)])
def test_tables_of_something_else_are_refused(shape: tuple[int, int]) -> None:
    target = DecomposedBias(embed_dims=1, num_heads=1, window_size=(3, 3))
    with pytest.raises(ValueError, match="does not fit"):
        target.transfer({"rel_pos_h": torch.zeros(shape)}, "")
    with pytest.raises(ValueError, match="mode must be"):
        target.transfer({"rel_pos_h": torch.zeros(3, 1)}, "", mode="bicubic")
    with pytest.raises(ValueError, match="mode must be"):
        DecomposedBias(embed_dims=1, num_heads=1, window_size=(3, 3), mode="nearest")
    with pytest.raises(ValueError, match="does not divide"):
        DecomposedBias(embed_dims=8, num_heads=3, window_size=(3, 3))


def test_parameters_of_swin_t() -> None:
    blocks = [(96 * 2**i, 3 * 2**i) for i, depth in enumerate((2, 2, 6, 2)) for _ in range(depth)]
    built = [DecomposedBias(embed_dims=c, num_heads=h, window_size=(7, 7)) for c, h in blocks]
    assert sum(p.numel() for encoding in built for p in encoding.parameters()) == 9_984
