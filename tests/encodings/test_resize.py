"""Resizing of tables, as pure functions and through every way of loading a state dict."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from relpos_mm.encodings import AbsoluteTable, RelativeBias
from relpos_mm.encodings.resize import resize_absolute, resize_bias_table

windows = st.tuples(st.integers(1, 9), st.integers(1, 9))
modes = st.sampled_from(["scale", "extend"])


def as_offsets(table: Tensor, window: tuple[int, int]) -> dict[tuple[int, int], Tensor]:
    height, width = window
    rows = [(y, x) for y in range(1 - height, height) for x in range(1 - width, width)]
    return dict(zip(rows, table, strict=True))


def from_offsets(window: tuple[int, int], value) -> Tensor:
    height, width = window
    return torch.tensor(
        [[value(y, x)] for y in range(1 - height, height) for x in range(1 - width, width)],
        dtype=torch.float64,
    )


@given(source=windows, target=windows)
def test_extend_keeps_offsets_and_repeats_the_edge(source, target) -> None:
    table = from_offsets(source, lambda y, x: 100.0 * y + x)
    extended = resize_bias_table(table, source, target, "extend")
    old = as_offsets(table, source)
    for (y, x), value in as_offsets(extended, target).items():
        nearest = (
            max(1 - source[0], min(y, source[0] - 1)),
            max(1 - source[1], min(x, source[1] - 1)),
        )
        assert torch.equal(value, old[nearest])


@given(source=windows, mode=modes)
def test_the_same_window_is_the_same_tensor(source, mode) -> None:
    table = torch.randn((2 * source[0] - 1) * (2 * source[1] - 1), 3)
    assert resize_bias_table(table, source, source, mode) is table
    absolute = torch.randn(1, 4, *source)
    assert resize_absolute(absolute, source) is absolute


@given(source=windows, target=windows, mode=modes)
def test_a_constant_table_stays_constant(source, target, mode) -> None:
    table = from_offsets(source, lambda y, x: 0.7)
    resized = resize_bias_table(table, source, target, mode)
    assert resized.shape == ((2 * target[0] - 1) * (2 * target[1] - 1), 1)
    torch.testing.assert_close(resized, torch.full_like(resized, 0.7))


@pytest.mark.parametrize("axis", [0, 1])
@given(source=windows, factor=st.floats(0.1, 4), mode=modes)
def test_a_table_linear_in_the_offset_stays_monotone(axis, source, factor, mode) -> None:
    """Up to four times the window; beyond, the cubic kernel overshoots next to the edge."""
    target = tuple(max(1, int(side * factor)) for side in source)
    table = from_offsets(source, lambda y, x: float((y, x)[axis]))
    resized = resize_bias_table(table, source, target, mode)
    grid = resized.view(2 * target[0] - 1, 2 * target[1] - 1)
    assert (grid.diff(dim=axis) >= -1e-12).all()
    assert (grid.diff(dim=1 - axis).abs() < 1e-9).all()


@given(source=windows, target=windows, mode=modes)
def test_the_zero_offset_and_the_mirror_are_kept(source, target, mode) -> None:
    table = torch.randn((2 * source[0] - 1) * (2 * source[1] - 1), 2, dtype=torch.float64)
    resized = resize_bias_table(table, source, target, mode)
    torch.testing.assert_close(resized[len(resized) // 2], table[len(table) // 2])
    mirrored = resize_bias_table(table.flip(0), source, target, mode)
    torch.testing.assert_close(mirrored, resized.flip(0))


def test_low_precision_tables_are_resized_in_float32() -> None:
    table = torch.randn(169, 3).bfloat16()
    expected = resize_bias_table(table.float(), (7, 7), (9, 5)).bfloat16()
    resized = resize_bias_table(table, (7, 7), (9, 5))
    assert resized.dtype == torch.bfloat16
    assert torch.equal(resized, expected)
    with torch.autocast("cpu", torch.bfloat16):
        absolute = torch.randn(1, 4, 5, 6)
        assert resize_absolute(absolute, (9, 9)).dtype == torch.float32


def test_wrong_rows_and_unknown_modes_are_refused() -> None:
    with pytest.raises(ValueError, match="window 5 x 5 has 81 rows, this one has 169"):
        resize_bias_table(torch.zeros(169, 3), (5, 5), (7, 7))
    with pytest.raises(ValueError, match="'scale' or 'extend', got 'stretch'"):
        resize_bias_table(torch.zeros(169, 3), (7, 7), (5, 5), "stretch")


def test_a_non_square_window_has_to_be_named() -> None:
    encoding = RelativeBias(num_heads=2, window_size=(7, 7))
    key = "relative_position_bias_table"
    flat = torch.randn(7 * 13, 2)
    with pytest.raises(ValueError, match=f"(?s){key}: 91 rows.*--window"):
        encoding.load_state_dict({key: flat})
    state = {key: flat}
    (record,) = encoding.transfer(state, "", source={"window_size": (4, 7)})
    assert (record.key, record.old_shape, record.new_shape) == (key, (91, 2), (169, 2))
    assert "window 4x7 -> 7x7" in str(record)
    assert torch.equal(state[key], resize_bias_table(flat, (4, 7), (7, 7)))
    state = {key: flat}
    encoding.transfer(state, "", source={"window_size": (4, 7)}, mode="extend")
    assert torch.equal(state[key], resize_bias_table(flat, (4, 7), (7, 7), "extend"))


def test_the_window_of_equal_size_but_other_shape_is_resized_when_named() -> None:
    encoding = RelativeBias(num_heads=2, window_size=(7, 4))
    state = {"relative_position_bias_table": torch.randn(91, 2)}
    before = state["relative_position_bias_table"]
    assert len(encoding.transfer(state, "", source={"window_size": (4, 7)})) == 1
    assert torch.equal(
        state["relative_position_bias_table"], resize_bias_table(before, (4, 7), (7, 4))
    )


@pytest.mark.parametrize(
    ("encoding", "entry", "message"),
    [
        (
            RelativeBias(num_heads=4, window_size=(7, 7)),
            {"relative_position_bias_table": torch.zeros(169, 3)},
            r"relative_position_bias_table: \(169, 3\).*\(169, 4\).*num_heads",
        ),
        (
            AbsoluteTable(embed_dims=48, grid_size=(8, 8)),
            {"absolute_pos_embed": torch.zeros(1, 96, 8, 8)},
            r"absolute_pos_embed: \(1, 96, 8, 8\).*\(1, 48, 8, 8\).*embed_dims",
        ),
        (
            AbsoluteTable(embed_dims=48, grid_size=(8, 8)),
            {"absolute_pos_embed": torch.zeros(1, 65, 48)},
            r"absolute_pos_embed: \(1, 65, 48\).*flat.*tools/transfer.py",
        ),
    ],
)
def test_a_table_that_cannot_belong_here_is_refused(encoding, entry, message) -> None:
    with pytest.raises(ValueError, match=message):
        encoding.load_state_dict(entry)


def test_flat_absolute_table_of_the_same_grid_is_read_row_by_row() -> None:
    encoding = AbsoluteTable(embed_dims=4, grid_size=(2, 3))
    flat = torch.arange(24.0).view(1, 6, 4)
    encoding.load_state_dict({"absolute_pos_embed": flat})
    assert torch.equal(encoding.absolute_pos_embed[0, :, 1, 2], flat[0, 5])
    with pytest.raises(ValueError, match=r"tools/transfer\.py"):
        encoding.load_state_dict({"absolute_pos_embed": flat[:, :5]})
