"""Index arithmetic of relative tables: which row an offset reads."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relpos_mm.encodings import Grid, RelativeBias
from relpos_mm.encodings.buckets import axis_offsets, product_index, table_rows

windows = st.tuples(st.integers(1, 7), st.integers(1, 7))


@pytest.mark.parametrize("window", [(4, 7), (7, 4)])
def test_a_non_square_window_reads_91_rows(window: tuple[int, int]) -> None:
    assert table_rows(window) == 91
    index = product_index(window, window, window)
    assert index.unique().tolist() == list(range(91))


@given(window=windows)
def test_a_row_is_an_offset_and_an_offset_is_a_row(window) -> None:
    index = product_index(window, window, window)
    offsets = Grid(window).offsets().long()
    rows_of: dict[tuple[int, ...], set[int]] = {}
    for offset, row in zip(offsets.flatten(0, 1).tolist(), index.flatten().tolist(), strict=True):
        rows_of.setdefault(tuple(offset), set()).add(row)
    assert all(len(rows) == 1 for rows in rows_of.values())
    assert len(rows_of) == len(set.union(*rows_of.values())) == table_rows(window)


@given(window=windows)
def test_swapping_query_and_key_mirrors_the_table(window) -> None:
    index = product_index(window, window, window)
    assert torch.equal(index.t(), table_rows(window) - 1 - index)


@given(window=windows, data=st.data())
def test_a_smaller_grid_keeps_its_offsets(window, data) -> None:
    grid = tuple(data.draw(st.integers(1, side)) for side in window)
    small = product_index(grid, grid, window)
    full = product_index(window, window, window)
    places = torch.arange(window[0] * window[1]).view(window)[: grid[0], : grid[1]].flatten()
    assert torch.equal(small, full[places][:, places])


@given(queries=st.tuples(st.integers(1, 4), st.integers(1, 4)), pool=st.sampled_from([1, 2, 3]))
def test_pooled_queries_stand_where_the_grid_says(queries, pool) -> None:
    size = (queries[0] * pool, queries[1] * pool)
    index = product_index(queries, size, size)
    offsets = Grid(queries, k=size).offsets()
    centre = torch.tensor([size[0] - 1, size[1] - 1])
    expected = (offsets + centre) @ torch.tensor([2.0 * size[1] - 1, 1.0])
    assert torch.equal(index, expected.long())


def test_fractional_offsets_are_refused() -> None:
    with pytest.raises(ValueError, match="3 queries over 4 keys"):
        axis_offsets(3, 4, "cpu")


def test_a_grid_larger_than_the_window_is_refused() -> None:
    encoding = RelativeBias(num_heads=1, window_size=(4, 7))
    tokens = torch.zeros(1, 1, 25, 2)
    with pytest.raises(ValueError, match="query grid 5 x 5 is larger than the window 4 x 7"):
        encoding.bias(tokens, tokens, Grid((5, 5)), 1.0)


def test_the_index_is_cached_per_argument_and_usable_in_training() -> None:
    product_index.cache_clear()
    with torch.inference_mode():
        first = product_index((3, 5), (3, 5), (5, 5))
    for _ in range(3):
        product_index((5, 3), (5, 3), (5, 5))
        assert product_index((3, 5), (3, 5), (5, 5)) is first
    assert product_index.cache_info().misses == 2
    assert not first.is_inference()
