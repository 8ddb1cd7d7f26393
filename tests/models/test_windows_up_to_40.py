"""Index arithmetic and window operations on every map and window of up to 40 tokens a side.

All of it treats rows and columns alike and apart, so one axis is tried in full and both together
at random.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relpos_mm.encodings.buckets import product_index, table_rows
from relpos_mm.models.swin_layers import PatchMerging
from relpos_mm.models.windows import padded_size, shift_mask, token_slots, window_index

UP_TO_40 = st.tuples(st.integers(1, 40), st.integers(1, 40))


def shifts_of(window: int) -> list[int]:
    """No shift, that of published networks, and the largest."""
    return sorted({0, window // 2, window - 1})


def axis_reference(size: int, window: int, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """Token in every slot of an axis, by definition, and which pairs were not torn apart.

    Returns:
        ``(windows, window)``, the number of tokens for padding, and ``(windows, window, window)``.
    """
    padded = -(-size // window) * window
    places = (np.arange(padded) + shift) % padded  # rolling brings place i + shift to slot i
    places = places.reshape(-1, window)
    slots = np.arange(padded).reshape(-1, window)
    kept = places[:, :, None] - places[:, None, :] == slots[:, :, None] - slots[:, None, :]
    return np.minimum(places, size), kept


@pytest.mark.parametrize("window", range(1, 41))
def test_b011_every_length_and_shift_of_one_axis(window: int) -> None:
    for size in range(1, 41):
        for shift in shifts_of(window):
            tokens, kept = axis_reference(size, window, shift)
            for turn in (1, -1):
                sizes = ((size, 1)[::turn], (window, 1)[::turn], (shift, 0)[::turn])
                index = window_index(*sizes)
                assert np.array_equal(index.numpy(), tokens), sizes
                assert np.array_equal(shift_mask(*sizes).numpy(), kept), sizes
                slots = token_slots(index, size)
                assert np.array_equal(index.flatten()[slots].numpy(), np.arange(size)), sizes


@settings(max_examples=40)
@given(size=UP_TO_40, window=UP_TO_40, data=st.data())
def test_both_axes_together(size: tuple[int, int], window: tuple[int, int], data) -> None:
    shift = tuple(data.draw(st.sampled_from(shifts_of(side))) for side in window)
    (rows, kept_rows), (columns, kept_columns) = (
        axis_reference(*axis) for axis in zip(size, window, shift, strict=True)
    )
    index = window_index(size, window, shift).numpy()
    height, width = padded_size(size, window)
    assert index.shape == (len(rows) * len(columns), window[0] * window[1])
    assert (height % window[0], width % window[1]) == (0, 0)
    for number, found in enumerate(index):
        row, column = rows[number // len(columns)], columns[number % len(columns)]
        expected = row[:, None] * size[1] + column[None, :]
        outside = (row[:, None] == size[0]) | (column[None, :] == size[1])
        expected[outside] = size[0] * size[1]
        assert np.array_equal(found, expected.flatten())
    slot = data.draw(st.integers(0, index.shape[1] - 1))
    allowed = shift_mask(size, window, shift)[:, slot].numpy()
    y, x = divmod(slot, window[1])
    for number, found in enumerate(allowed):
        row, column = kept_rows[number // len(columns)][y], kept_columns[number % len(columns)][x]
        assert np.array_equal(found, (row[:, None] & column[None, :]).flatten())


@pytest.mark.parametrize("window", range(1, 41))
def test_b014_every_offset_of_one_axis_has_its_row(window: int) -> None:
    places = np.arange(window)
    expected = places[:, None] - places[None, :] + window - 1
    for turn in (1, -1):
        sides = (window, 1)[::turn]
        assert table_rows(sides) == 2 * window - 1
        assert np.array_equal(product_index(sides, sides, sides).numpy(), expected)


@settings(max_examples=40)
@given(window=UP_TO_40, data=st.data())
def test_b014_rows_of_any_window_and_of_grids_inside_it(window: tuple[int, int], data) -> None:
    """Row-major over offsets, whatever the grid; non-square windows included."""
    # 144 tokens at most, so that the matrix of all pairs stays small
    grid = tuple(data.draw(st.integers(1, min(side, 12))) for side in window)
    index = product_index(grid, grid, window)
    y, x = (torch.arange(side) for side in grid)
    rows = y[:, None, None, None] - y[None, None, :, None] + window[0] - 1
    columns = x[None, :, None, None] - x[None, None, None, :] + window[1] - 1
    expected = (rows * (2 * window[1] - 1) + columns).reshape(index.shape)
    assert torch.equal(index.long(), expected)
    assert table_rows(window) == (2 * window[0] - 1) * (2 * window[1] - 1)


@settings(max_examples=40)
@given(size=UP_TO_40)
def test_b013_merging_pads_at_the_bottom_and_right(size: tuple[int, int]) -> None:
    merging = PatchMerging(2)
    merging.norm = torch.nn.Identity()
    merging.reduction = torch.nn.Identity()
    x = torch.arange(1.0, 1 + size[0] * size[1]).view(1, *size, 1)
    merged = merging(x)[0].numpy()
    full = np.zeros((2 * -(-size[0] // 2), 2 * -(-size[1] // 2)))
    full[: size[0], : size[1]] = x[0, :, :, 0].numpy()
    parts = [full[down::2, right::2] for right in (0, 1) for down in (0, 1)]
    assert np.array_equal(merged, np.stack(parts, axis=-1))
