"""Lists of several encodings: the order is free, and every form of attention gives the same."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from relpos_mm.analysis.catalogue import CATALOGUE, build
from relpos_mm.encodings import Grid, PositionEncoding
from relpos_mm.models import attend, attention

HEADS, HEAD_DIM = 2, 8
# These change q and k, each in a way that does not commute with the others'.
TURNING = ("rope_axial", "rope_mixed", "txl", "logcpb_cosine", "biasonly")
ADDING = tuple(
    name
    for name in CATALOGUE
    if name not in (*TURNING, "abs", "sin2d", "abswin", "peg")  # those act on the map alone
)


@st.composite
def calls(draw) -> tuple[list[str], Grid, bool]:
    """Names of a list, a grid with or without prefix tokens, and whether keys are hidden."""
    names = draw(st.lists(st.sampled_from(ADDING), min_size=1, max_size=4, unique=True))
    names += draw(st.lists(st.sampled_from(TURNING), max_size=1))
    size = draw(st.tuples(st.integers(1, 5), st.integers(1, 6)))
    return names, Grid(size, prefix=draw(st.integers(0, 2))), draw(st.booleans())


def built(names: Sequence[str], grid: Grid) -> list[PositionEncoding]:
    """One after the other: a list of a model has every class once, a bare call need not."""
    torch.manual_seed(0)
    sizes = {"grid": grid.q, "embed_dims": HEADS * HEAD_DIM, "num_heads": HEADS, "layer": 1}
    encodings = [build(CATALOGUE[name], **sizes)[0].double() for name in names]
    for encoding in encodings:
        for parameter in encoding.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
    return encodings


def run(
    encodings: Sequence[PositionEncoding], grid: Grid, hidden: bool, impl: str
) -> tuple[Tensor, list[Tensor]]:
    """Output and gradients of inputs and parameters."""
    generator = torch.Generator().manual_seed(1)
    inputs = [
        torch.randn(
            2, HEADS, grid.num_keys, HEAD_DIM, generator=generator, dtype=torch.float64
        ).requires_grad_()
        for _ in "qkv"
    ]
    mask = None
    if hidden:
        mask = torch.zeros(2, grid.num_keys, dtype=torch.bool)
        mask[1, 1:] = True
    out = attend(*inputs, encodings, grid, key_padding_mask=mask, impl=impl)
    # By name, as a permuted list has its parameters elsewhere.
    parameters = {id(p): p for encoding in encodings for p in encoding.parameters()}
    leaves = [*inputs, *(parameters[key] for key in sorted(parameters))]
    weight = torch.randn(out.shape, generator=generator, dtype=torch.float64)
    grads = torch.autograd.grad((out * weight).sum(), leaves, allow_unused=True)
    return out, [g for g in grads if g is not None]


@settings(max_examples=40)
@given(calls(), st.randoms(use_true_random=False))
def test_the_order_is_free(call, shuffler: random.Random) -> None:
    names, grid, hidden = call
    encodings = built(names, grid)
    expected = run(encodings, grid, hidden, "eager")
    shuffler.shuffle(encodings)
    torch.testing.assert_close(run(encodings, grid, hidden, "eager"), expected)


@settings(max_examples=40)
@given(calls())
def test_fused_equals_eager(call) -> None:
    names, grid, hidden = call
    encodings = [encoding for encoding in built(names, grid) if not encoding.needs_attn]
    expected = run(encodings, grid, hidden, "eager")
    torch.testing.assert_close(run(encodings, grid, hidden, "fused"), expected)


@settings(max_examples=40)
@given(calls())
def test_blocks_equal_eager(call) -> None:
    """Blocks forced on small grids, wherever a call can take them at all."""

    def possible(_q: Tensor, _k: Tensor, bias: Tensor | None) -> bool:
        return not (bias is not None and bias.requires_grad)

    names, grid, hidden = call
    encodings = built(names, grid)
    expected = run(encodings, grid, hidden, "eager")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "worth_slicing", possible)
        torch.testing.assert_close(run(encodings, grid, hidden, "auto"), expected)
