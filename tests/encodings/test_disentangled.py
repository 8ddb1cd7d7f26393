"""DeBERTa's disentangled attention in two dimensions."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from relpos_mm.encodings import Disentangled, Grid
from relpos_mm.encodings.disentangled import log_bucket
from relpos_mm.models import attend
from relpos_mm.models.window_attention import WindowAttention

from .layers import projected, tokens_of
from .reference import FILES, error, read

FOLDER = FILES / "encodings"
NAMES = ("query_proj", "key_proj", "value_proj")


@pytest.mark.parametrize(
    "path", sorted(FOLDER.glob("deberta_buckets_*.npz")), ids=lambda path: path.stem
)
def test_buckets_equal_deberta(path: Path) -> None:
    data = read(path)
    size, longest = data["meta"].tolist()
    assert torch.equal(log_bucket(data["offset"].long(), size, longest), data["bucket"].long())


def loaded(data: dict[str, Tensor], axis: int, mapping: str) -> Disentangled:
    """The 1-D vectors along one axis, none on the other."""
    _, size, longest, shared = data["meta_L_bucket_max_share"].tolist()
    encoding = Disentangled(
        embed_dims=data["x"].shape[2],
        num_heads=2,
        bucket_size=size,
        max_distance=longest,
        share_projections=bool(shared),
        mapping=mapping,
        layer_norm=False,
    )
    vectors = data["rel_embeddings"]
    if mapping == "cross":
        tables = [encoding.rel_embeddings_h.data, encoding.rel_embeddings_w.data]
        tables[axis].copy_(vectors)
        tables[1 - axis].zero_()
    else:
        table = encoding.rel_embeddings.data.view(2 * size, 2 * size, -1)
        table.select(1 - axis, size).copy_(vectors)
    for name in () if shared else ("pos_key_proj", "pos_query_proj"):
        state = {kind: data[f"w.{name}.{kind}"] for kind in ("weight", "bias")}
        getattr(encoding, name).load_state_dict(state)
    return encoding.double()


@pytest.mark.parametrize("impl", ["eager", "fused"])
@pytest.mark.parametrize("mapping", ["cross", "product"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ["shared", "unshared"])
def test_one_line_equals_deberta(kind: str, axis: int, mapping: str, impl: str) -> None:
    data = read(FOLDER / f"deberta_{kind}_1d.npz")
    encoding = loaded(data, axis, mapping)
    q, k, v = projected(data, NAMES, 2)
    channels, length = data["x"].shape[2], data["x"].shape[1]
    host = nn.Linear(channels, 3 * channels).double()
    host.weight.data = torch.cat([data[f"w.{name}.weight"] for name in NAMES]).double()
    host.bias.data = torch.cat([data[f"w.{name}.bias"] for name in NAMES]).double()
    encoding.bind(proj=host)
    grid = Grid((length, 1) if axis == 0 else (1, length))
    out = attend(q, k, v, [encoding], grid, impl=impl)
    assert error(tokens_of(out), data["context"]) < 1e-9
    eye = torch.eye(length, dtype=torch.float64).expand(1, 2, -1, -1)
    assert error(attend(q, k, eye, [encoding], grid, impl=impl), data["probs"]) < 1e-9


def test_papers_second_term_mirrors_the_codes() -> None:
    torch.manual_seed(0)
    options = {"embed_dims": 8, "num_heads": 2, "c2p": False, "bucket_size": 4, "max_distance": 8}
    code = Disentangled(**options)
    paper = Disentangled(**options, p2c_offset="paper")
    paper.load_state_dict(code.state_dict())
    k = torch.randn(1, 2, 1, 4).expand(1, 2, 12, 4)  # one key everywhere: the offset alone speaks
    grid = Grid((3, 4))
    one, other = (encoding.bias(k, k, grid, 1.0) for encoding in (code, paper))
    assert torch.allclose(one, other.transpose(2, 3))
    assert not torch.allclose(one, other)


def test_shared_projections_belong_to_the_host() -> None:
    options = {"type": "Disentangled", "share_projections": True}
    attention = WindowAttention(
        8, 2, (3, 3), shifted=False, position=[options], context={"layer": 0, "depth": 1}
    )
    (encoding,) = attention.encodings
    assert {name.split(".")[0] for name, _ in encoding.named_parameters()} == {
        "norm",
        "rel_embeddings_h",
        "rel_embeddings_w",
    }
    copied = copy.deepcopy(attention)
    x = torch.randn(1, 3, 3, 8)
    grid = Grid((3, 3))
    expected = attention(x, grid)
    assert torch.equal(copied(x, grid), expected)
    copied.qkv.weight.data.zero_()  # the copy's encoding follows the copy's projection
    assert torch.equal(attention(x, grid), expected)
    vectors = copied.encodings[0].bias(*torch.randn(2, 1, 2, 9, 4), grid, 1.0)
    bias = attention.encodings[0].bias(*torch.randn(2, 1, 2, 9, 4), grid, 1.0)
    assert vectors.std() < bias.std()


def test_shared_projections_without_a_host_say_so() -> None:
    encoding = Disentangled(embed_dims=8, num_heads=2, share_projections=True)
    q = torch.zeros(1, 2, 4, 4)
    with pytest.raises(ValueError, match=r"call bind\(proj=\.\.\.\)"):
        encoding.bias(q, q, Grid((2, 2)), 1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bucket_size": 5}, "even"),
        ({"bucket_size": 12, "max_distance": 7}, "max_distance=7"),
        ({"c2p": False, "p2c": False}, "both off"),
        ({"mapping": "sum"}, "mapping must be"),
        ({"p2c_offset": "both"}, "p2c_offset must be"),
        ({"num_heads": 3}, "does not divide"),
    ],
)
def test_nonsense_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Disentangled(**{"embed_dims": 8, "num_heads": 2, **options})


def test_default_buckets_are_exact_in_a_window_of_seven() -> None:
    offsets = torch.arange(-6, 7)
    assert torch.equal(log_bucket(offsets, 12, 64), offsets)
