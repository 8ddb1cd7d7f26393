"""Cutting maps into windows: indices, masks and the attention that uses them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from relpos_mm.encodings import Grid
from relpos_mm.models.window_attention import WindowAttention, window_geometry
from relpos_mm.models.windows import (
    padded_size,
    shift_mask,
    token_slots,
    window_index,
    window_plan,
)

from .files import arrays, swin_file

RELATIVE = {"type": "RelativeBias"}
CONTEXT = {"layer": 0, "depth": 1, "grid_size": (8, 8)}


@st.composite
def geometries(draw) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Map, window and shift, each side on its own."""
    size = draw(st.tuples(st.integers(1, 13), st.integers(1, 13)))
    window = draw(st.tuples(st.integers(1, 6), st.integers(1, 6)))
    shift = tuple(draw(st.integers(0, side - 1)) for side in window)
    return size, window, shift


@given(geometries())
def test_slots_are_the_inverse_of_the_index(geometry) -> None:
    size, window, shift = geometry
    index = window_index(size, window, shift)
    tokens = size[0] * size[1]
    slots = token_slots(index, tokens)
    assert torch.equal(index.flatten()[slots], torch.arange(tokens))
    padding = index.numel() - tokens
    assert int((index == tokens).sum()) == padding


@given(geometries())
def test_the_index_is_pad_roll_and_partition(geometry) -> None:
    size, window, shift = geometry
    tokens = torch.arange(size[0] * size[1]).view(1, *size, 1)
    windows = pad_roll_partition(tokens, window, shift, fill=size[0] * size[1])
    assert torch.equal(window_index(size, window, shift), windows[..., 0])


def pad_roll_partition(
    x: Tensor, window: tuple[int, int], shift: tuple[int, int], fill: float = 0
) -> Tensor:
    """``(B, H, W, C) -> (B * windows, N, C)`` in the order of the published code."""
    height, width = padded_size(tuple(x.shape[1:3]), window)
    x = F.pad(x, (0, 0, 0, width - x.shape[2], 0, height - x.shape[1]), value=fill)
    x = x.roll((-shift[0], -shift[1]), dims=(1, 2))
    rows = x.split(window[0], dim=1)
    windows = [part.flatten(1, 2) for row in rows for part in row.split(window[1], dim=2)]
    return torch.stack(windows, dim=1).flatten(0, 1)


@given(geometries())
def test_the_shift_mask_allows_exactly_the_pairs_that_were_neighbours(geometry) -> None:
    """A pair may meet when rolling back keeps the distance that it has inside its window."""
    size, window, shift = geometry
    height, width = padded_size(size, window)
    mask = shift_mask(size, window, shift)
    number = 0
    for top in range(0, height, window[0]):
        for left in range(0, width, window[1]):
            slots = [
                (y, x) for y in range(top, top + window[0]) for x in range(left, left + window[1])
            ]
            before = [((y + shift[0]) % height, (x + shift[1]) % width) for y, x in slots]
            for i, (y, x) in enumerate(slots):
                for j, (v, u) in enumerate(slots):
                    kept = (
                        before[i][0] - before[j][0] == y - v
                        and before[i][1] - before[j][1] == x - u
                    )
                    assert bool(mask[number, i, j]) == kept
            number += 1
    assert number == len(mask)


def test_the_shift_mask_equals_the_published_one() -> None:
    assert torch.equal(
        shift_mask((25, 33), (7, 7), (3, 3)), swin_file("shift_mask_w7")["attn_mask"]
    )


def test_cutting_and_gluing_equal_detectron2(golden_dir: Path) -> None:
    data = arrays(golden_dir / "encodings" / "window_partition_pad.npz")
    x = data["x"]
    size, window = (x.shape[1], x.shape[2]), (data["windows"].shape[1], data["windows"].shape[2])
    assert padded_size(size, window) == tuple(data["padded_hw"].tolist())
    index = window_index(size, window, (0, 0))
    tokens = F.pad(x.flatten(1), (0, 1))  # the last one stands for padding
    assert torch.equal(tokens[:, index].view_as(data["windows"]), data["windows"])
    back = data["windows"].view(len(x), -1)[:, token_slots(index, size[0] * size[1])]
    assert torch.equal(back.view_as(x), data["back"])


def one_hot_attention(mask_padding: bool, dtype: torch.dtype = torch.float64) -> Tensor:
    """Weights ``(80, 80)`` of a shifted block on an 8 x 10 map: q = k = 0, v one-hot."""
    tokens = 80
    host = WindowAttention(
        tokens,
        1,
        (7, 7),
        shifted=True,
        position=[],
        context=CONTEXT,
        mask_padding=mask_padding,
    ).to(dtype)
    with torch.no_grad():
        for parameter in host.parameters():
            parameter.zero_()
        host.qkv.weight[2 * tokens :] = torch.eye(tokens)
        host.proj.weight.copy_(torch.eye(tokens))
        x = torch.eye(tokens, dtype=dtype).view(1, 8, 10, tokens)
        return host(x, Grid((8, 10)))[0].flatten(0, 1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mask_padding", [False, True])
def test_tokens_of_opposite_borders_never_meet(mask_padding: bool, dtype: torch.dtype) -> None:
    weights = one_hot_attention(mask_padding, dtype)
    # Padded to 14 x 14 and shifted by 3: along an axis the regions are [0, 3), [3, 10), [10, 14).
    place = [
        (y, x, (y >= 3) + (y >= 10), (x >= 3) + (x >= 10)) for y in range(8) for x in range(10)
    ]
    expected = torch.zeros(80, 80, dtype=torch.float64)
    for i, (y, x, *region) in enumerate(place):
        for j, (v, u, *other) in enumerate(place):
            if region == other:
                assert abs(y - v) < 7
                assert abs(x - u) < 7
                expected[i, j] = 1
    extent = {0: 3, 1: 7, 2: 4}  # rows or columns of a region, padding included
    for i, (_, _, row, column) in enumerate(place):
        keys = expected[i].sum() if mask_padding else extent[row] * extent[column]
        expected[i] /= keys
    assert torch.equal(weights == 0, expected == 0)
    torch.testing.assert_close(weights.double(), expected, atol=2e-3, rtol=5e-3)


@pytest.mark.parametrize("window", [(7, 7), (4, 7), (5, 2)])
@pytest.mark.parametrize("size", [(8, 10), (3, 4), (14, 7), (1, 1)])
@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("mask_padding", [False, True])
def test_window_attention_equals_the_plain_form(window, size, shifted, mask_padding) -> None:
    torch.manual_seed(0)
    host = WindowAttention(
        8,
        2,
        window,
        shifted=shifted,
        position=[RELATIVE],
        context=CONTEXT,
        mask_padding=mask_padding,
    ).double()
    for parameter in host.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(2, *size, 8, dtype=torch.float64)
    torch.testing.assert_close(host(x, Grid(size)), plain_attention(host, x, mask_padding))


def plain_attention(host: WindowAttention, x: Tensor, mask_padding: bool) -> Tensor:
    """Pad, roll, cut, attend window by window, glue, roll back, crop."""
    window, size = host.window_size, tuple(x.shape[1:3])
    shift = (window[0] // 2, window[1] // 2) if host.shifted else (0, 0)
    table = host.position["relative_bias"].relative_position_bias_table
    windows = pad_roll_partition(x, window, shift)
    real = pad_roll_partition(torch.ones(1, *size, 1), window, shift)[..., 0] > 0
    allowed = shift_mask(size, window, shift)
    places = [(y, x) for y in range(window[0]) for x in range(window[1])]
    rows = [
        [(y - v + window[0] - 1) * (2 * window[1] - 1) + x - u + window[1] - 1 for v, u in places]
        for y, x in places
    ]
    bias = table[torch.tensor(rows)].permute(2, 0, 1)
    outs = []
    for i, tokens in enumerate(windows):
        q, k, v = host.qkv(tokens).view(-1, 3, 2, 4).permute(1, 2, 0, 3)
        number = i % len(real)
        seen = allowed[number]
        if mask_padding:
            seen = seen & (real[number] | torch.eye(len(places), dtype=torch.bool))
        logits = (q @ k.transpose(1, 2) / 2 + bias).masked_fill(~seen, -torch.inf)
        outs.append(host.proj((logits.softmax(-1) @ v).transpose(0, 1).flatten(1)))
    height, width = padded_size(size, window)
    grid = (height // window[0], width // window[1])
    out = torch.stack(outs).view(x.shape[0], *grid, *window, -1)
    out = out.transpose(2, 3).reshape(x.shape[0], height, width, -1)
    return out.roll(shift, dims=(1, 2))[:, : size[0], : size[1]]


@pytest.mark.parametrize(
    ("size", "window", "shifted", "rule", "expected"),
    [
        ((8, 10), (7, 7), True, "pad", ((7, 7), (3, 3))),
        ((8, 10), (7, 7), False, "pad", ((7, 7), (0, 0))),
        ((4, 5), (7, 7), True, "pad", ((7, 7), (3, 3))),
        ((4, 5), (7, 7), True, "shrink", ((4, 4), (0, 0))),
        ((7, 7), (7, 7), True, "shrink", ((7, 7), (0, 0))),
        ((7, 20), (7, 7), True, "shrink", ((7, 7), (0, 0))),
        ((8, 8), (7, 7), True, "shrink", ((7, 7), (3, 3))),
        ((9, 9), (4, 7), True, "pad", ((4, 7), (2, 3))),
    ],
)
def test_the_two_rules_for_small_maps(size, window, shifted, rule, expected) -> None:
    assert window_geometry(size, window, shifted, rule) == expected


def test_plans_are_cached_by_every_argument_and_fit_for_training() -> None:
    window_plan.cache_clear()
    cpu = torch.device("cpu")
    with torch.inference_mode():
        first = window_plan((25, 42), (7, 7), (3, 3), False, cpu)
    for _ in range(3):
        window_plan((42, 25), (7, 7), (3, 3), False, cpu)
        assert window_plan((25, 42), (7, 7), (3, 3), False, cpu) is first
    assert window_plan.cache_info().misses == 2
    assert not first.index.is_inference()
    masked = window_plan((25, 42), (7, 7), (3, 3), True, cpu)
    assert masked is not first
    assert masked.mask.sum() < first.mask.sum()
    with torch.device("meta"):
        elsewhere = window_plan((5, 6), (7, 7), (0, 0), False, cpu)
    assert elsewhere.index.device == cpu
    assert window_plan.cache_info().maxsize == 64
