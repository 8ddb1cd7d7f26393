"""Tokens into windows and back: what stands where, and that each way is the other's gradient."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from relpos_mm.models.window_moves import from_windows, slot_rows, to_windows, token_rows
from relpos_mm.models.windows import WindowPlan, window_plan

CPU = torch.device("cpu")
PARTS, WIDTH = 3, 2


@st.composite
def cases(draw) -> tuple[WindowPlan, int, int]:
    """A plan, a batch size and a number of heads."""
    size = draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    window = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    shift = tuple(draw(st.integers(0, side - 1)) for side in window)
    plan = window_plan(size, window, shift, False, CPU)
    return plan, draw(st.integers(1, 3)), draw(st.integers(1, 3))


def random_tokens(plan: WindowPlan, batch: int, channels: int) -> Tensor:
    count = len(plan.slots) + plan.padded
    return torch.randn(batch, count, channels, dtype=torch.float64)


def plain_to_windows(tokens: Tensor, plan: WindowPlan, heads: int) -> Tensor:
    """One gather of whole tokens, then a transposition."""
    slots = tokens[:, plan.index.flatten()].view(
        len(tokens) * plan.num_windows, -1, PARTS, heads, WIDTH
    )
    return slots.permute(2, 0, 3, 1, 4)


def plain_from_windows(windows: Tensor, plan: WindowPlan) -> Tensor:
    batch = len(windows) // plan.num_windows
    return windows.transpose(1, 2).flatten(2).reshape(batch, plan.index.numel(), -1)[:, plan.slots]


@settings(max_examples=60)
@given(cases())
def test_moves_equal_a_gather_and_a_transposition_gradients_included(case) -> None:
    plan, batch, heads = case
    tokens = random_tokens(plan, batch, PARTS * heads * WIDTH).requires_grad_()
    windows, expected = (
        to_windows(tokens, plan, PARTS, heads),
        plain_to_windows(tokens, plan, heads),
    )
    assert windows.is_contiguous()
    assert torch.equal(windows, expected)
    back = from_windows(windows[1], plan)
    assert torch.equal(back, plain_from_windows(expected[1], plan))
    loss = torch.randn_like(windows), torch.randn_like(back)
    found = torch.autograd.grad((windows, back), tokens, loss, retain_graph=True)[0]
    pair = (expected, plain_from_windows(expected[1], plan))
    torch.testing.assert_close(found, torch.autograd.grad(pair, tokens, loss)[0])


@settings(max_examples=60)
@given(cases())
def test_the_way_back_undoes_the_way_there(case) -> None:
    plan, batch, heads = case
    tokens = random_tokens(plan, batch, heads * WIDTH)
    windows = to_windows(tokens, plan, 1, heads)[0]
    assert torch.equal(from_windows(windows, plan), tokens[:, : len(plan.slots)])


@settings(max_examples=60)
@given(cases())
def test_rows_of_tokens_invert_rows_of_slots(case) -> None:
    plan, batch, heads = case
    slots = slot_rows(plan.cut, batch, PARTS, heads, CPU)
    shape = (batch, len(plan.slots) + plan.padded, PARTS * heads)
    tokens = token_rows(plan.cut, batch, PARTS, heads, CPU).view(shape)[:, : len(plan.slots)]
    everything = torch.arange(tokens.shape[0] * shape[1] * shape[2]).view(shape)
    assert torch.equal(slots[tokens].long(), everything[:, : len(plan.slots)])


@pytest.mark.parametrize("size", [(4, 6), (5, 3)])
def test_second_derivatives_exist(size: tuple[int, int]) -> None:
    plan = window_plan(size, (2, 3), (1, 1), False, CPU)
    tokens = random_tokens(plan, 2, 3 * 4).requires_grad_()

    def function(tokens: Tensor) -> Tensor:
        q, k, v = to_windows(tokens, plan, 3, 2)
        return from_windows(q * k.exp() + v.square(), plan)

    assert torch.autograd.gradgradcheck(function, (tokens,))


def test_only_slots_without_a_token_are_padding() -> None:
    plan = window_plan((5, 3), (2, 3), (1, 1), False, CPU)
    assert plan.padded
    assert torch.equal(plan.padding, (plan.index.flatten() == 15).nonzero().flatten())
    assert not window_plan((4, 3), (2, 3), (1, 1), False, CPU).padded
    tokens = F.pad(torch.ones(1, 15, 1), (0, 0, 0, 1), value=7.0)
    assert to_windows(tokens, plan, 1, 1).flatten()[plan.padding].eq(7).all()
