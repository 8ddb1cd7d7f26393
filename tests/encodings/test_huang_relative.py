"""Huang's relative vectors on queries and keys."""

from __future__ import annotations

import pytest
import torch

from relpos_mm.encodings import Grid, HuangRelative
from relpos_mm.models import attend

from .layers import projected, tokens_of
from .reference import FILES, error, read
from .test_shaw_relative import fill_line


@pytest.mark.parametrize("impl", ["eager", "fused"])
@pytest.mark.parametrize("mapping", ["product", "cross"])
@pytest.mark.parametrize("axis", [0, 1])
def test_one_line_equals_bert(axis: int, mapping: str, impl: str) -> None:
    data = read(FILES / "encodings" / "huang_key_query_1d.npz")
    q, k, v = projected(data, ("query", "key", "value"), 2)
    length = q.shape[2]
    clip = [0, 0]
    clip[axis] = length - 1
    encoding = HuangRelative(embed_dims=24, num_heads=2, clip=tuple(clip), mapping=mapping)
    fill_line(encoding.vectors, axis, data["table"])
    grid = Grid((length, 1) if axis == 0 else (1, length))
    out = attend(q, k, v, [encoding.double()], grid, impl=impl)
    assert error(tokens_of(out), data["context"]) < 1e-9
    eye = torch.eye(length, dtype=torch.float64).expand(1, 2, -1, -1)
    assert error(attend(q, k, eye, [encoding], grid, impl=impl), data["probs"]) < 1e-9


def test_both_terms_read_the_same_row() -> None:
    """The key side is gathered on key rows and turned around: dropping one turn would show."""
    encoding = HuangRelative(embed_dims=1, num_heads=1, clip=(0, 2)).double()
    encoding.vectors.table.data.copy_(torch.tensor([[1.0], [2.0], [3.0], [5.0], [8.0]]))
    q, k = torch.tensor([1.0, 10.0]).double().view(1, 1, 2, 1), torch.ones(1, 1, 2, 1).double()
    term = encoding.bias(q, k, Grid((1, 2)), 1.0)[0, 0]
    # offset 0, then key to the right (query minus key is -1); below, to the left and 0
    expected = [[(1 + 1) * 3, (1 + 1) * 2], [(10 + 1) * 5, (10 + 1) * 3]]
    assert term.tolist() == expected


def test_pooled_queries_equal_the_whole_grid() -> None:
    torch.manual_seed(0)
    for mapping in ("product", "cross"):
        encoding = HuangRelative(embed_dims=8, num_heads=2, clip=2, mapping=mapping).double()
        q, k = torch.randn(2, 1, 2, 24, 4, dtype=torch.float64)
        whole = encoding.bias(q, k, Grid((4, 6)), 1.0).view(1, 2, 4, 6, 24)
        pooled_q = q.view(1, 2, 4, 6, 4)[:, :, ::2, ::2].flatten(2, 3)
        pooled = encoding.bias(pooled_q, k, Grid((2, 3), (4, 6)), 1.0)
        assert torch.allclose(pooled, whole[:, :, ::2, ::2].flatten(2, 3))
