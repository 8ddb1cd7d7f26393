"""ALiBi in two dimensions and LookHere."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from relpos_mm.encodings import Alibi2d, DirectedDistance, Grid
from relpos_mm.models import attend

from .reference import FILES, error, read
from .relative_formulas import look_here

FOLDER = FILES / "encodings"
Q = torch.zeros(1)


@pytest.mark.parametrize("heads", [3, 4, 6, 8])
def test_alibi_slopes_equal_the_public_ones(heads: int) -> None:
    expected = read(FOLDER / "alibi_2d_5x4.npz")[f"slopes_h{heads}"]
    assert torch.equal(torch.tensor(Alibi2d(num_heads=heads).slopes), expected)


@pytest.mark.parametrize("heads", [3, 4])
def test_alibi_equals_the_public_bias(heads: int) -> None:
    expected = read(FOLDER / "alibi_2d_5x4.npz")[f"bias_h{heads}"]
    assert error(Alibi2d(num_heads=heads).bias(Q, Q, Grid((5, 4)), 1.0)[0], expected) < 1e-6


def test_alibi_counts_in_steps() -> None:
    encoding = Alibi2d(num_heads=2)
    near = encoding.bias(Q, Q, Grid((3, 4)), 1.0)
    assert torch.equal(encoding.bias(Q, Q, Grid((3, 4), step=(2.0, 2.0)), 1.0), 2 * near)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("lookhere_*.npz")), ids=lambda path: path.stem)
def test_directed_bias_equals_lookhere(path: Path) -> None:
    data = read(path)
    heads = data["penalty_inf"].shape[0]
    options = {"num_heads": heads, "directions": path.stem.split("_")[1]}
    grid = Grid(tuple(data["meta_grid"].tolist()))
    penalty = -DirectedDistance(**options).bias(Q, Q, grid, 1.0)[0]
    torch.testing.assert_close(penalty, data["penalty_inf"], rtol=1e-6, atol=0)
    for layer, expected in enumerate(data["bias_bf16_layers"]):
        bias = DirectedDistance(**options, layer=layer, depth=3).bias(Q, Q, grid, 1.0)[0]
        rounded = bias.clamp(min=torch.finfo(torch.bfloat16).min).bfloat16().float()
        assert torch.equal(rounded, expected)


@pytest.mark.parametrize(
    ("heads", "directed", "undirected"),
    [
        (3, [], [1 / 4, 1 / 16, 1 / 64]),
        (4, [1 / 2] * 4, []),
        (6, [1 / 2] * 4, [1 / 4, 1 / 16]),
        (12, [1 / 2] * 4 + [1 / 4] * 4, [1 / 4, 1 / 16, 1 / 64, 1 / 256]),
        (16, [1 / 2] * 4 + [1 / 4] * 4, [1 / 4] * 2 + [1 / 16] * 2 + [1 / 64] * 2 + [1 / 256] * 2),
        (24, [2.0**-i for i in (1, 2, 3, 4) for _ in range(4)], None),
    ],
)
def test_heads_are_dealt_out(heads: int, directed: list, undirected: list | None) -> None:
    encoding = DirectedDistance(num_heads=heads)
    split = heads - encoding.undirected
    assert list(encoding.slopes[:split]) == directed
    if undirected is not None:
        assert list(encoding.slopes[split:]) == undirected


def test_layer_slope_falls_over_the_depth() -> None:
    slopes = [DirectedDistance(num_heads=1, layer=i, depth=12).slopes[0] * 4 for i in (0, 11)]
    assert slopes == [1.5, 0.5]
    assert DirectedDistance(num_heads=1, layer=0, depth=1).slopes[0] * 4 == 1.5
    assert DirectedDistance(num_heads=1, slope=0.5).slopes[0] * 4 == 0.5


@pytest.mark.parametrize("directions", ["halves", "corners", "triangles", "eighths"])
@pytest.mark.parametrize("queries", [(3, 5), (6, 5), (2, 2)])
def test_every_query_sees_a_key_and_all_views_cover_the_grid(
    directions: str, queries: tuple[int, int]
) -> None:
    """Pooled queries too; together the views leave no pair out."""
    encoding = DirectedDistance(num_heads=8, directions=directions, undirected=0)
    seen = torch.isfinite(encoding.bias(Q, Q, Grid(queries, (3, 5)), 1.0)[0])
    assert seen.any(2).all()
    assert seen.any(0).all()


def test_blind_pairs_never_mix_with_masks() -> None:
    """A window mask on top: hidden and blind keys get no weight, nothing becomes NaN."""
    torch.manual_seed(0)
    encoding = DirectedDistance(num_heads=4, directions="corners")
    q, k = torch.randn(2, 1, 4, 9, 8)
    weights = torch.eye(9).expand(1, 4, -1, -1)
    mask = torch.rand(1, 1, 9, 9) > 0.5
    mask |= torch.eye(9, dtype=torch.bool)
    sees = torch.isfinite(encoding.bias(q, k, Grid((3, 3)), 1.0)) & mask
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for impl in ("eager", "fused"):
            inputs = (tensor.to(dtype) for tensor in (q, k, weights))
            attn = attend(*inputs, [encoding], Grid((3, 3)), mask=mask, impl=impl)
            assert torch.equal(attn > 0, sees)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"directions": "thirds"}, "directions must be"),
        ({"undirected": 7}, "7 undirected of 6 heads"),
        ({"layer": 3, "depth": 3}, "layer 3 of depth 3"),
        ({"layer": 3}, "layer 3 of depth None"),
        ({"layer": 0, "depth": 0}, "depth must be a whole number of at least 1, got 0"),
        ({"layer": 0.5, "depth": 4}, "layer must be a whole number of at least 0, got 0.5"),
    ],
)
def test_nonsense_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DirectedDistance(**{"num_heads": 6, **options})


@pytest.mark.parametrize("directions", ["halves", "corners", "triangles", "eighths"])
def test_views_are_sectors_of_a_circle(directions: str) -> None:
    encoding = DirectedDistance(num_heads=8, directions=directions, undirected=0)
    bias = encoding.bias(Q, Q, Grid((4, 5)), 1.0)[0]
    places = [(row, column) for row in range(4) for column in range(5)]
    for head in range(8):
        expected = [[look_here(encoding, head, q, k) for k in places] for q in places]
        torch.testing.assert_close(bias[head], torch.tensor(expected))
