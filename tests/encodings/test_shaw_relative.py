"""Shaw's relative vectors, and the clipped tables behind them."""

from __future__ import annotations

import pytest
import torch

from relpos_mm.encodings import Grid, ShawRelative
from relpos_mm.encodings.offset_vectors import OffsetVectors, clipped_index
from relpos_mm.models import attend

from .layers import projected, tokens_of
from .reference import FILES, error, read

FOLDER = FILES / "encodings"


def fill_line(vectors: OffsetVectors, axis: int, table: torch.Tensor) -> None:
    """Write a 1-D table along one axis; a cross table of the other axis is zero."""
    for name, parameter in vectors.named_parameters():
        used = name == "table" or name == ("rows", "columns")[axis]
        parameter.data.copy_(table if used else torch.zeros_like(parameter))


@pytest.mark.parametrize("impl", ["eager", "fused"])
@pytest.mark.parametrize("mapping", ["product", "cross"])
@pytest.mark.parametrize("axis", [0, 1])
def test_one_line_equals_bert(axis: int, mapping: str, impl: str) -> None:
    data = read(FOLDER / "shaw_key_1d.npz")
    q, k, v = projected(data, ("query", "key", "value"), 2)
    length = q.shape[2]
    clip = [0, 0]
    clip[axis] = length - 1
    encoding = ShawRelative(embed_dims=24, num_heads=2, clip=tuple(clip), mapping=mapping).double()
    fill_line(encoding.key_vectors, axis, data["table"])
    grid = Grid((length, 1) if axis == 0 else (1, length))
    out = attend(q, k, v, [encoding], grid, impl=impl)
    assert error(tokens_of(out), data["context"]) < 1e-9
    eye = torch.eye(length, dtype=torch.float64).expand(1, 2, -1, -1)
    assert error(attend(q, k, eye, [encoding], grid, impl=impl), data["probs"]) < 1e-9


def test_asymmetric_clip_equals_speecht5() -> None:
    data = read(FOLDER / "shaw_clip_1d.npz")
    length, clip = data["meta_len_clip"].tolist()
    encoding = ShawRelative(embed_dims=6, num_heads=1, clip=(0, clip), asymmetric=True)
    vectors = encoding.key_vectors
    fill_line(vectors, 1, data["table"])
    index = clipped_index((1, length), (1, length), vectors.reach)
    assert torch.equal(vectors.table[index], data["rel"])


def test_index_is_the_offset_until_it_is_clipped() -> None:
    """B014: 4 x 7 and 7 x 4 have every row once the clip covers them, rows first, rising."""
    for height, width in ((4, 7), (7, 4)):
        reach = ((height - 1,) * 2, (width - 1,) * 2)
        index = clipped_index((height, width), (height, width), reach)
        assert index.unique().tolist() == list(range((2 * height - 1) * (2 * width - 1)))
        assert torch.equal(index + index.t(), torch.full_like(index, int(index.max())))
        assert index[0, 1] == index[0, 0] - 1
        assert index[0, width] == index[0, 0] - (2 * width - 1)


def test_pooled_queries_stand_on_keys() -> None:
    """A query of a 2 x 3 grid stands on the first key of its 2 x 2 cell."""
    whole = clipped_index((4, 6), (4, 6), ((2, 2), (2, 2))).view(4, 6, 24)
    pooled = clipped_index((2, 3), (4, 6), ((2, 2), (2, 2))).view(2, 3, 24)
    assert torch.equal(pooled, whole[::2, ::2])


def test_values_need_the_attention_matrix() -> None:
    q = torch.zeros(1, 1, 4, 4)
    grid = Grid((2, 2))
    with_values = ShawRelative(embed_dims=4, num_heads=1, values=True)
    assert with_values.needs_attn
    with pytest.raises(ValueError, match="attention matrix"):
        attend(q, q, q, [with_values], grid, impl="fused")
    without = ShawRelative(embed_dims=4, num_heads=1)
    assert not without.needs_attn
    attend(q, q, q, [without], grid, impl="fused")


@pytest.mark.parametrize("mapping", ["product", "cross"])
def test_values_of_prefix_tokens_stay(mapping: str) -> None:
    """A prefix token takes values as they are and gives no vector away."""
    encoding = ShawRelative(embed_dims=4, num_heads=1, values=True, mapping=mapping).double()
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, 7, 4, dtype=torch.float64)
    grid = Grid((2, 3), prefix=1)
    plain = ShawRelative(embed_dims=4, num_heads=1, mapping=mapping).double()
    plain.key_vectors.load_state_dict(encoding.key_vectors.state_dict())
    expected, out = (attend(q, k, v, [e], grid) for e in (plain, encoding))
    assert torch.equal(out[:, :, 0], expected[:, :, 0])
    assert (out[:, :, 1:] != expected[:, :, 1:]).all()


@pytest.mark.parametrize("options", [{"mapping": "quantization"}, {"clip": -1}])
def test_nonsense_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must"):
        ShawRelative(embed_dims=4, num_heads=1, **options)


def test_other_clips_keep_every_offset() -> None:
    source = ShawRelative(embed_dims=2, num_heads=1, clip=(1, 2)).key_vectors
    source.table.data.copy_(torch.arange(15.0)[:, None].expand(15, 2))
    target = ShawRelative(embed_dims=2, num_heads=1, clip=(2, 1))
    state = {"key_vectors.table": source.table.data}
    assert target.transfer(dict(state), "", source={"clip": (1, 2)}) == []  # equal shapes
    target = ShawRelative(embed_dims=2, num_heads=1, clip=(2, 3))
    (record,) = target.transfer(state, "", source={"clip": (1, 2)})
    assert record.new_shape == (35, 2)
    rows = [0, 0, 1, 2, 3, 4, 4]
    expected = [5 * y + x for y in (0, 0, 1, 2, 2) for x in rows]
    assert state["key_vectors.table"][:, 0].tolist() == expected


def test_a_clip_that_cannot_be_told_is_asked_for() -> None:
    target = ShawRelative(embed_dims=2, num_heads=1, clip=3)
    with pytest.raises(ValueError, match=r"key_vectors\.table: 15 rows.*name the clip"):
        target.transfer({"key_vectors.table": torch.zeros(15, 2)}, "")
    with pytest.raises(ValueError, match="heads or embed_dims"):
        target.transfer({"key_vectors.table": torch.zeros(15, 3)}, "")


def test_parameters_of_swin_t() -> None:
    blocks = [(96 * 2**i, 3 * 2**i) for i, depth in enumerate((2, 2, 6, 2)) for _ in range(depth)]
    built = [ShawRelative(embed_dims=c, num_heads=h) for c, h in blocks]
    assert sum(p.numel() for encoding in built for p in encoding.parameters()) == 18_816
