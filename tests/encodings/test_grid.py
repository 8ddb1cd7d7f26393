"""The grid that an attention call works on."""

from __future__ import annotations

import pytest
import torch

from relpos_mm.encodings import Grid


def test_token_counts_include_the_prefix() -> None:
    grid = Grid((2, 3), k=(4, 6), prefix=1)
    assert (grid.num_queries, grid.num_keys) == (7, 25)
    assert Grid((2, 3)).k == (2, 3)


def test_coordinates_are_row_major_and_offsets_are_query_minus_key() -> None:
    grid = Grid((2, 3))
    assert grid.coords().tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    offsets = grid.offsets()
    assert offsets[5, 1].tolist() == [1, 1]
    assert torch.equal(offsets, -offsets.transpose(0, 1))


def test_pooled_queries_and_steps_scale_coordinates() -> None:
    grid = Grid((2, 2), k=(4, 6), step=(1.0, 2.0))
    assert grid.coords("q").tolist() == [[0, 0], [0, 6], [2, 0], [2, 6]]
    assert grid.coords("k")[-1].tolist() == [3, 10]


def test_a_grid_is_a_cache_key_whatever_its_arguments_were() -> None:
    grids = {
        Grid([2, 3], valid=torch.tensor([[1, 2]])),
        Grid((2, 3), valid=[(1, 2)], step=[1, 1]),
        Grid(torch.Size((2, 3)), valid=((1, 2),)),
    }
    assert len(grids) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"q": (0, 3)}, r"Grid.q must be \(H, W\) of at least 1 x 1, got 0 x 3"),
        ({"q": 7}, "Grid.q must be .* got 7"),
        ({"q": (2, 2.5)}, "Grid.q must be .* got 2 x 2.5"),
        ({"q": (2, 2), "k": (2, 2, 2)}, "Grid.k must be .* got 2 x 2 x 2"),
        ({"q": (2, 3), "k": (2, -1)}, "Grid.k must be"),
        ({"q": "23"}, "Grid.q must be .* got '23'"),
        ({"q": None}, "Grid.q must be .* got None"),
        ({"q": (2, None)}, "Grid.q must be .* got 2 x None"),
        ({"q": (2, float("inf"))}, "Grid.q must be .* got 2 x inf"),
        ({"q": (True, 2)}, "Grid.q must be .* got True x 2"),
        ({"q": (2, 3), "prefix": -1}, "whole number of tokens, at least 0, got -1"),
        ({"q": (2, 3), "prefix": 0.5}, "Grid.prefix must be .* got 0.5"),
        ({"q": (2, 3), "prefix": None}, "Grid.prefix must be .* got None"),
        ({"q": (2, 3), "prefix": True}, "Grid.prefix must be .* got True"),
        ({"q": (2, 3), "step": 2}, r"Grid.step must be distances \(rows, columns\), got 2"),
        ({"q": (2, 3), "step": (1, 2, 3)}, "Grid.step must be distances"),
        ({"q": (2, 3), "step": (1, 0)}, "Grid.step: columns must be a number above 0, got 0"),
        ({"q": (2, 3), "step": (-1, 1)}, "Grid.step: rows must be a number above 0, got -1"),
        ({"q": (2, 3), "step": (float("nan"), 1)}, "Grid.step: rows must be .* got nan"),
        ({"q": (2, 3), "step": ("1", 1)}, "Grid.step: rows must be .* got '1'"),
        ({"q": (2, 3), "valid": 4}, "Grid.valid must be"),
        ({"q": (2, 3), "valid": [(2, 4)]}, "reaches outside"),
        ({"q": (2, 3), "valid": [(0, 1)]}, "Grid.valid must be"),
    ],
)
def test_impossible_grids_are_refused(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        Grid(**arguments)
