"""Permutations against reference vectors, and against their own inverses."""

from __future__ import annotations

import pytest
import torch

from relpos_mm.encodings.resize import resize_bias_table
from relpos_mm.transfer import TransferError, permute

from .helpers import load_npz

GOLDEN = load_npz("swin_permutations.npz")


def test_unfold_order_equals_the_reference() -> None:
    index = permute.merge_to_unfold(torch.arange(96))
    assert torch.equal(index, GOLDEN["merge_index_unfold_from_official_layers0"])
    for name, unfolded in (
        ("reduction.weight", "merge_reduction_unfold_layers0"),
        ("norm.weight", "merge_norm_weight_unfold_layers0"),
    ):
        official = GOLDEN[f"layers.0.downsample.{name}"]
        assert torch.equal(permute.merge_to_unfold(official), GOLDEN[unfolded])
        assert torch.equal(permute.merge_from_unfold(GOLDEN[unfolded]), official)


@pytest.mark.parametrize("channels", [1, 2, 3, 96])
def test_merge_permutations_are_inverses(channels: int) -> None:
    value = torch.randn(2 * channels, 4 * channels)
    assert torch.equal(permute.merge_from_unfold(permute.merge_to_unfold(value)), value)
    assert torch.equal(permute.merge_to_unfold(permute.merge_from_unfold(value)), value)


def test_merge_equals_an_unfolded_map() -> None:
    """The definition itself: what nn.Unfold gives, multiplied by the permuted weight."""
    x, weight = torch.randn(1, 3, 4, 6, dtype=torch.float64), torch.randn(6, 12).double()
    neighbours = [x[:, :, row::2, col::2] for row, col in ((0, 0), (1, 0), (0, 1), (1, 1))]
    official = torch.cat(neighbours, 1).flatten(2).transpose(1, 2) @ weight.T
    unfolded = torch.nn.functional.unfold(x, 2, stride=2).transpose(1, 2)
    torch.testing.assert_close(unfolded @ permute.merge_to_unfold(weight).T, official)


def test_absolute_forms_are_inverses_row_major() -> None:
    table = torch.randn(1, 5, 2, 7)
    tokens = permute.absolute_to_tokens(table)
    assert tokens.shape == (1, 14, 5)
    assert torch.equal(tokens[0, 7 + 3], table[0, :, 1, 3])
    assert torch.equal(permute.absolute_to_map(tokens, (2, 7)), table)
    assert torch.equal(permute.absolute_to_map(table, (9, 9)), table)


@pytest.mark.parametrize(
    ("rows", "grid", "prefix", "fits"),
    [
        (196, (14, 14), 0, True),
        (197, (14, 14), 1, True),
        (196, (13, 15), 1, True),  # a count that is a square, and yet has a class row
        (198, (14, 14), 2, True),
        (196, (14, 14), 1, False),
        (197, (14, 14), 0, False),
        (3136, (28, 112), 0, True),
        (3137, (56, 56), 0, False),
        (50, (7, 7), 1, True),
        (49, (7, 7), 1, False),
    ],
)
def test_prefix_rows_are_declared_never_guessed(
    rows: int, grid: tuple[int, int], prefix: int, fits: bool
) -> None:
    """B108, B109."""
    table = torch.arange(float(rows)).reshape(1, rows, 1)
    if fits:
        out = permute.absolute_to_map(table, grid, prefix)
        assert out.shape == (1, 1, *grid)
        assert out[0, 0, 0, 0] == prefix
        assert out.max() == rows - 1
    else:
        with pytest.raises(TransferError, match=f"{rows} rows.*--prefix-tokens"):
            permute.absolute_to_map(table, grid, prefix)


def test_square_index_equals_the_reference() -> None:
    table = GOLDEN["layers.1.blocks.0.attn.relative_position_bias_table"]
    assert torch.equal(permute.square_index(table), GOLDEN["relative_position_index"])
    assert permute.square_index(torch.zeros(91, 3)) is None  # window 4x7


def test_table_resize_equals_the_reference() -> None:
    table = GOLDEN["layers.1.blocks.0.attn.relative_position_bias_table"].double()
    resized = resize_bias_table(table, (7, 7), (12, 12))
    expected = GOLDEN["table_layers1_blocks0_resized_to_window12"]
    torch.testing.assert_close(resized, expected, rtol=0, atol=1e-10)
