"""The sweep: what every position encoding has to do, one function per demand.

``CHECKS`` run on every :class:`~tests.encodings.case.Case`; ``test_sweep.py`` holds one case per
registered class and setting. A case states its formula once more in plain scalar code (``embed``,
``bias``, ``logit``, ``added_value``), and ``sweep_formula.py`` compares the encoding with a double
loop over it.
"""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from relpos_mm.encodings import Grid, PositionEncoding, RelativeBias
from relpos_mm.models import attend

from .case import (
    CANVAS,
    CHANNELS,
    CONTENT,
    HEAD_DIM,
    HEADS,
    Case,
    change,
    layer,
    on_canvas,
    random_map,
    random_qkv,
)
from .memory import LargestTensor
from .sweep_formula import check_formula


def check_shapes(case: Case) -> None:
    encoding = case.build()
    for size in ((1, 1), (1, 6), CONTENT, CANVAS):
        grid = Grid(size)
        assert encoding.embed(random_map(size).float(), grid).shape == (2, *size, CHANNELS)
        q, k, v = random_qkv(grid, dtype=torch.float32)
        assert attend(q, k, v, [encoding], grid).shape == (2, HEADS, size[0] * size[1], HEAD_DIM)


def check_dtypes(case: Case) -> None:
    """float32, bfloat16 and float16: the dtype is kept, near float64, mask and prefix included."""
    exact = case.build().double()
    x = random_map(CANVAS)
    grid = Grid(CANVAS)
    hidden = torch.zeros(2, grid.num_keys, dtype=torch.bool)
    hidden[0, 5:] = True
    expected = layer(exact, x, grid, key_padding_mask=hidden)
    for dtype, tolerance in (
        (torch.float32, 2e-6),
        (torch.bfloat16, 0.02 * case.coarse),
        (torch.float16, 0.002 * case.coarse),
    ):
        encoding = copy.deepcopy(exact).to(dtype)
        assert encoding.embed(x.to(dtype), grid).dtype == dtype
        for impl in ("eager", *(() if encoding.needs_attn else ("fused",))):
            out = layer(encoding, x.to(dtype), grid, key_padding_mask=hidden, impl=impl)
            assert out.dtype == dtype
            # A hidden query's own output is never used, and may see hidden keys alone.
            shown = ~hidden.view(2, *CANVAS)
            assert change(out[shown].double(), expected[shown]) < tolerance, (dtype, impl)


def check_other_dtypes(case: Case) -> None:
    """Tokens of another dtype than the parameters, outside autocast: the result has theirs."""
    exact = case.build().double()
    grid = Grid(CANVAS)
    for own, dtype, tolerance in (
        (torch.float32, torch.float64, 2e-6),
        (torch.float32, torch.bfloat16, 0.02 * case.coarse),
        (torch.bfloat16, torch.float32, 0.02 * case.coarse),
    ):
        encoding = copy.deepcopy(exact).to(own)
        x = random_map(CANVAS).to(dtype).requires_grad_()
        embedded = encoding.embed(x, grid)
        q, k, v = random_qkv(grid, dtype=dtype)
        out = attend(q, k, v, [encoding], grid)
        assert embedded.dtype == out.dtype == dtype
        assert change(embedded.double(), exact.embed(x.double(), grid)) < tolerance
        expected = attend(q.double(), k.double(), v.double(), [exact], grid)
        assert change(out.double(), expected) < tolerance, (own, dtype)
        (embedded.sum() + out.sum()).backward()
        for parameter in encoding.parameters():
            assert parameter.grad is None or parameter.grad.isfinite().all()


def check_long_axis(case: Case) -> None:
    """Bfloat16 counts exactly to 256 only: far positions must not pass through it."""
    if case.cls is RelativeBias:
        return  # its table ends with the window
    grid = Grid((1, 320))
    encoding = case.build().bfloat16()
    exact = copy.deepcopy(encoding).double()
    x = random_map(grid.q, batch=1).bfloat16()
    q, k, _ = random_qkv(grid, batch=1, dtype=torch.bfloat16)

    def answers(encoding: PositionEncoding, *inputs: Tensor) -> list[Tensor]:
        x, q, k = inputs
        bias = encoding.bias(q, k, grid, 0.5)
        bias = bias[0] @ bias[1].mT if isinstance(bias, tuple) else bias
        found = [encoding.embed(x, grid) - x, *encoding.rotate(q, k, grid)]
        return found if bias is None else [*found, bias.clamp(min=-1e4)]

    ours = answers(encoding, x, q, k)
    for near, true in zip(ours, answers(exact, x.double(), q.double(), k.double()), strict=True):
        assert (near.double() - true).abs().max() <= 0.03 * true.abs().max()


def check_autocast(case: Case) -> None:
    """Float32 parameters under bfloat16 autocast, as ``--amp`` runs them."""
    encoding = case.build()
    grid = Grid(CANVAS)
    with torch.autocast("cpu", torch.bfloat16):
        assert encoding.embed(random_map(CANVAS).float(), grid).dtype == torch.float32
        q, k, v = random_qkv(grid, dtype=torch.bfloat16)
        out = attend(q, k, v, [encoding], grid)
    assert out.dtype == torch.bfloat16
    expected = attend(q.double(), k.double(), v.double(), [encoding.double()], grid)
    assert change(out.double(), expected) < 0.03


def check_gradients(case: Case) -> None:
    """Every number in every parameter gets a gradient from a map that covers the table."""
    encoding = case.build().double()
    x = random_map(case.covering).requires_grad_()
    layer(encoding, x, Grid(case.covering)).square().sum().backward()
    for name, parameter in encoding.named_parameters():
        assert parameter.grad is not None, name
        if name in case.invisible:
            assert parameter.grad.abs().max() < 1e-12, name
        else:
            reached = parameter.grad.ne(0)
            assert reached.any() if case.relu else reached.all(), name


def check_memory(case: Case) -> None:
    """No tensor of a training step has a vector per pair of tokens."""
    encoding = case.build()
    x, grid = random_map(CANVAS, batch=1).float().requires_grad_(), Grid(CANVAS)
    with LargestTensor() as largest:
        layer(encoding, x, grid).square().sum().backward()
    assert largest.num_bytes < 4 * grid.num_queries * grid.num_keys * HEAD_DIM


def check_translation(case: Case) -> None:
    """Content moved inside a canvas changes nothing, or something, as the class declares."""
    encoding = case.build().double()
    content = random_map(CONTENT)
    results = []
    for at in ((0, 0), (3, 2)):
        canvas, hidden = on_canvas(content, at)
        out = layer(encoding, canvas, Grid(CANVAS), key_padding_mask=hidden)
        results.append(out[:, at[0] : at[0] + CONTENT[0], at[1] : at[1] + CONTENT[1]])
    moved = change(results[1], results[0])
    if encoding.translation_equivariant:
        assert moved < 1e-12
    else:
        assert moved > 0.01


def check_padding(case: Case) -> None:
    """Content alone against the top left of a canvas of garbage, as the encoding declares."""
    encoding = case.build().double()
    content = random_map(CONTENT)
    alone = layer(encoding, content, Grid(CONTENT))
    canvas, hidden = on_canvas(content, (0, 0))
    changes = {}
    for known, valid in (("without valid", None), ("with valid", (CONTENT, CONTENT))):
        out = layer(encoding, canvas, Grid(CANVAS, valid=valid), key_padding_mask=hidden)
        changes[known] = change(out[:, : CONTENT[0], : CONTENT[1]], alone)
    expected = {
        "safe": {"without valid": True, "with valid": True},
        "needs_valid": {"without valid": False, "with valid": True},
        "unsafe": {"without valid": False, "with valid": False},
    }[encoding.padding]
    for known, same in expected.items():
        # Fixed waves are float32, a wrong place changes the output by more than a percent.
        assert changes[known] < 1e-6 if same else changes[known] > 0.01, (known, changes)


def check_state(case: Case) -> None:
    """Parameters alone are saved; files, copies and pickles give the same numbers."""
    encoding = case.build()
    assert set(encoding.state_dict()) == {name for name, _ in encoding.named_parameters()}
    x, grid = random_map(CANVAS).float(), Grid(CANVAS)
    expected = layer(encoding, x, grid)

    file = io.BytesIO()
    torch.save(encoding.state_dict(), file)
    file.seek(0)
    loaded = case.cls(**case.settings)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    copied = copy.deepcopy(encoding)
    pickled = pickle.loads(pickle.dumps(encoding))
    for other in (loaded, copied, pickled):
        assert torch.equal(layer(other, x, grid), expected)

    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.zero_()
    assert torch.equal(layer(encoding, x, grid), expected), "a deep copy shares parameters"


def check_other_size(case: Case) -> None:
    """A checkpoint of another size loads: resized, recorded, nothing left at its start."""
    source = case.build()
    target = case.cls(**{**case.settings, **case.other_size})
    before = {name: value.clone() for name, value in target.state_dict().items()}
    state = source.state_dict()
    kept = dict(state)
    records = target.transfer(dict(state), "")
    target.load_state_dict(state)
    changed = {name for name, value in before.items() if value.shape != kept[name].shape}
    assert {record.key for record in records} == changed
    for name, value in target.state_dict().items():
        assert value.shape == before[name].shape
        assert not torch.equal(value, before[name])
    assert all(state[name] is kept[name] for name in kept), "loading changed the caller's dict"


def check_initial_values(case: Case) -> None:
    """Equal seeds give equal values, and a fresh encoding starts near zero."""
    torch.manual_seed(5)
    one = case.cls(**case.settings).state_dict()
    torch.manual_seed(5)
    two = case.cls(**case.settings).state_dict()
    for name, value in one.items():
        assert torch.equal(value, two[name])
        assert torch.isfinite(value).all()


def check_no_decay(case: Case) -> None:
    encoding = case.build()
    assert set(encoding.no_decay()) <= {name for name, _ in encoding.named_parameters()}


def check_fused(case: Case) -> None:
    """Eager equals fused: prefix tokens, window masks, key masks, scale, hidden rows, gradients."""
    encoding = case.build().double()
    grid = Grid(CONTENT, prefix=2)
    tokens = grid.num_keys
    generator = torch.Generator().manual_seed(6)
    windows = torch.rand(2, 1, tokens, tokens, generator=generator) > 0.3
    windows[1, :, 4] = False  # this query sees nothing
    padding = torch.zeros(4, tokens, dtype=torch.bool)
    padding[3, 7:] = True
    if encoding.needs_attn:
        with pytest.raises(ValueError, match="attention matrix"):
            attend(*random_qkv(grid), [encoding], grid, impl="fused")
        return
    results = []
    for impl in ("eager", "fused"):
        inputs = [t.requires_grad_() for t in random_qkv(grid, batch=4)]
        encoding.zero_grad()
        out = attend(
            *inputs,
            [encoding],
            grid,
            scale=0.3,
            mask=windows,
            key_padding_mask=padding,
            impl=impl,
        )
        assert torch.isfinite(out).all()
        seen = windows.any(-1, keepdim=True).repeat(2, 1, 1, 1)
        (out * seen).square().sum().backward()  # the kernels' gradients of a blind row differ
        gradients = [t.grad for t in (*inputs, *encoding.parameters()) if t.grad is not None]
        results.append((out, *gradients))
    torch.testing.assert_close(results[0], results[1])


CHECKS: tuple[Callable[[Case], None], ...] = (
    check_shapes,
    check_dtypes,
    check_other_dtypes,
    check_long_axis,
    check_autocast,
    check_gradients,
    check_formula,
    check_memory,
    check_translation,
    check_padding,
    check_state,
    check_other_size,
    check_initial_values,
    check_no_decay,
    check_fused,
)
