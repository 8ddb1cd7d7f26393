"""FlexAttention equals the eager form where it can carry a call, and says where it cannot."""

from __future__ import annotations

import pytest
import torch

from relpos_mm.analysis.catalogue import CATALOGUE, build, position_of
from relpos_mm.encodings import Grid, PositionEncoding
from relpos_mm.models import attend

HEADS, WIDTH, SIZE = 4, 8, (3, 4)
CARRIED = {
    *("abs", "sin2d", "abswin", "rel", "biasonly", "dpb", "logcpb", "logcpb_cosine", "alibi"),
    *("lookhere", "sasa", "decomposed", "rope_axial", "rope_mixed", "txl", "peg", "lepe"),
}


def encodings(name: str) -> list[PositionEncoding]:
    torch.manual_seed(0)
    made = build(position_of(name), grid=SIZE, embed_dims=HEADS * WIDTH, num_heads=HEADS)
    for parameter in (p for encoding in made for p in encoding.parameters()):
        torch.nn.init.normal_(parameter, std=0.5)
    return [encoding.double() for encoding in made]


def tokens(grid: Grid, batch: int = 4) -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.randn(batch, HEADS, grid.num_queries, WIDTH).double() for _ in "qkv"]


def masks(n: int) -> list[torch.Tensor | None]:
    per_window = torch.rand(2, 1, n, n) > 0.3
    return [per_window | torch.eye(n, dtype=torch.bool), torch.randn(n, n), None]


# Encodings that act on the map alone never reach the kernel.
@pytest.mark.parametrize("name", sorted(CARRIED - {"abs", "sin2d", "abswin", "peg"}))
@torch.no_grad()
def test_it_equals_the_eager_form(name: str) -> None:
    grid = Grid(SIZE, prefix=1)
    made, qkv = encodings(name), tokens(grid)
    for mask in masks(grid.num_queries)[: 3 if name == "rel" else 1]:
        call = {"mask": mask, "scale": 0.4}
        expected = attend(*qkv, made, grid, impl="eager", **call)
        found = attend(*qkv, made, grid, impl="flex", **call)
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", sorted(set(CATALOGUE) - CARRIED))
@torch.no_grad()
def test_encodings_that_it_cannot_carry_are_named(name: str) -> None:
    made = encodings(name)
    with pytest.raises(ValueError, match=rf"'flex' cannot carry {made[0].name}: .* use 'auto'"):
        attend(*tokens(Grid(SIZE)), made, Grid(SIZE), impl="flex")


@torch.no_grad()
def test_a_row_without_visible_keys_stays_finite() -> None:
    mask = torch.ones(12, 12, dtype=torch.bool)
    mask[5] = False
    q, k, v = tokens(Grid(SIZE))
    for one in (mask, torch.zeros(12, 12).masked_fill(~mask, -torch.inf)):
        out = attend(q, k, v, encodings("rel"), Grid(SIZE), mask=one, impl="flex")
        torch.testing.assert_close(out[:, :, 5], v.mean(2))


def test_what_the_kernel_lacks_is_refused_before_it_runs() -> None:
    grid = Grid(SIZE)
    with pytest.raises(ValueError, match="no backward pass on a CPU"):
        attend(*tokens(grid), encodings("rel"), grid, impl="flex")
    with torch.no_grad(), pytest.raises(ValueError, match="no dropout of attention"):
        attend(*tokens(grid), encodings("rel"), grid, dropout=0.1, impl="flex")


@pytest.mark.parametrize("size", [(3, 4), (2, 3), (1, 1)])
@pytest.mark.parametrize("name", ["rel", "dpb", "logcpb", "alibi", "lookhere"])
@torch.no_grad()
def test_the_table_of_offsets_holds_the_bias(name: str, size: tuple[int, int]) -> None:
    (encoding,), grid = encodings(name), Grid(size)
    table = encoding.offset_table(grid, torch.device("cpu"))
    offsets = grid.offsets().long() + torch.tensor(size) - 1
    bias = encoding.bias(*tokens(grid)[:2], grid, 1.0)
    torch.testing.assert_close(table[:, offsets[..., 0], offsets[..., 1]][None], bias)
    assert encoding.offset_table(Grid(size, k=(6, 8)), torch.device("cpu")) is None
