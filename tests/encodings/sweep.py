"""The sweep: what every position encoding has to do, one function per demand.

``CHECKS`` run on every :class:`Case`; ``test_sweep.py`` holds one case per registered class and
setting. A case states its formula once more in plain scalar code (``embed``, ``bias``, ``logit``,
``added_value``), and the sweep compares the encoding with a double loop over it.
"""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from relpos_mm.encodings import Grid, PositionEncoding
from relpos_mm.models import attend

HEADS, HEAD_DIM = 2, 4
CHANNELS = HEADS * HEAD_DIM
CONTENT = (4, 5)  # a small picture in tokens
CANVAS = (7, 8)  # the larger map that its batch mates force on it
HOOKS = ("embed", "rotate", "bias", "value", "value_attn")

# Scalar forms of a formula. Embed: (encoding, row, column, grid) -> vector (C,) to add.
# Bias: (encoding, head, query place, key place) -> number to add to the scaled logit.
# Logit: (encoding, head, query place, key place, q, k) -> the whole logit, content included.
# Added value: (encoding, head, query place, key place) -> vector (d,) to add to the value.
EmbedFormula = Callable[[Any, int, int, Grid], Tensor]
BiasFormula = Callable[[Any, int, tuple[int, int], tuple[int, int]], Tensor]
# Content: (encoding, map (H, W, C), row, column, grid) -> vector (C,) to add, read off the map.
ContentFormula = Callable[[Any, Tensor, int, int, Grid], Tensor]
LogitFormula = Callable[[Any, int, tuple[int, int], tuple[int, int], Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    """One encoding with one setting.

    Attributes:
        cls: The class.
        settings: Constructor arguments; windows and tables must cover ``CANVAS``.
        embed: Scalar form of the ``embed`` hook, if it does not look at the content.
        embed_content: Scalar form of the ``embed`` hook, if it does.
        value: Scalar form of the ``value`` hook, if the class has one.
        bias: Scalar form of the ``bias`` hook, if it does not look at the content.
        logit: Scalar form of ``rotate``, and of a ``bias`` that looks at the content.
        added_value: Scalar form of the ``value_attn`` hook, if the class has one.
        other_size: Arguments that change for another size of the host; empty when nothing does.
        covering: A map that reads every number of the parameters.
        invisible: Parameters that add the same number to all logits of a query, which softmax
            ignores.
        coarse: Factor on the tolerance in half precision, for large logits that it rounds.
        relu: Whether a ReLU may hide single numbers of a parameter from every offset.
    """

    cls: type[PositionEncoding]
    settings: Mapping[str, Any]
    embed: EmbedFormula | None = None
    embed_content: ContentFormula | None = None
    value: ContentFormula | None = None
    bias: BiasFormula | None = None
    logit: LogitFormula | None = None
    added_value: BiasFormula | None = None
    other_size: Mapping[str, Any] = field(default_factory=dict)
    covering: tuple[int, int] = CANVAS
    invisible: frozenset[str] = frozenset()
    coarse: int = 1
    relu: bool = False

    def build(self, **changes: Any) -> PositionEncoding:
        """Return the encoding with large parameters, so that a wrong one shows."""
        torch.manual_seed(0)
        encoding = self.cls(**{**self.settings, **changes})
        for parameter in encoding.parameters():
            torch.nn.init.normal_(parameter)
        return encoding


def acts(encoding: PositionEncoding, hook: str) -> bool:
    """Whether the encoding does anything in ``hook`` with its setting."""
    if getattr(type(encoding), hook) is getattr(PositionEncoding, hook):
        return False
    if hook == "rotate":
        q, k, _ = random_qkv(Grid(CONTENT))
        return any(
            a is not b for a, b in zip(encoding.rotate(q, k, Grid(CONTENT)), (q, k), strict=True)
        )
    return encoding.needs_attn if hook == "value_attn" else True


def layer(
    encoding: PositionEncoding,
    x: Tensor,
    grid: Grid,
    *,
    key_padding_mask: Tensor | None = None,
    impl: str = "eager",
) -> Tensor:
    """One attention layer with fixed random projections on a map ``(B, H, W, C)``."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(3, CHANNELS, CHANNELS, generator=generator).to(x.dtype) / CHANNELS**0.5
    located = encoding.embed(x, grid)
    sources = (located, located, x if encoding.site == "qk_input" else located)
    q, k, v = (
        (source.flatten(1, 2) @ matrix).unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2)
        for source, matrix in zip(sources, weight, strict=True)
    )
    out = attend(q, k, v, [encoding], grid, key_padding_mask=key_padding_mask, impl=impl)
    return out.transpose(1, 2).reshape(x.shape)


def random_map(size: tuple[int, int], batch: int = 2, seed: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, *size, CHANNELS, generator=generator, dtype=torch.float64)


def random_qkv(grid: Grid, batch: int = 2, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    sizes = (grid.num_queries, grid.num_keys, grid.num_keys)
    return [
        torch.randn(batch, HEADS, n, HEAD_DIM, generator=generator, dtype=torch.float64).to(dtype)
        for n in sizes
    ]


def on_canvas(content: Tensor, at: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Content placed in garbage; map ``(B, H, W, C)`` and key mask ``(B, N)``, True = hidden."""
    height, width = content.shape[1:3]
    canvas = 3 * random_map(CANVAS, content.shape[0], seed=4)
    hidden = torch.ones(content.shape[0], *CANVAS, dtype=torch.bool)
    rows, columns = slice(at[0], at[0] + height), slice(at[1], at[1] + width)
    canvas[:, rows, columns] = content
    hidden[:, rows, columns] = False
    return canvas, hidden.flatten(1)


def change(a: Tensor, b: Tensor) -> float:
    """Relative root-mean-square difference."""
    return ((a - b).square().mean().sqrt() / b.square().mean().sqrt()).item()


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


def check_formula(case: Case) -> None:
    """Embed and bias equal a double loop over the scalar formula; no hook goes unproved."""
    encoding = case.build().double()
    proofs = {
        "embed": (case.embed, case.embed_content),
        "value": (case.value,),
        "rotate": (case.logit,),
        "bias": (case.bias, case.logit),
        "value_attn": (case.added_value,),
    }
    for hook in HOOKS:
        proved = any(proof is not None for proof in proofs.get(hook, ()))
        assert proved or not acts(encoding, hook), f"no formula proves {hook}"
    for grid in (Grid(CONTENT), Grid((3, 1)), Grid(CANVAS, valid=((4, 5), (7, 2)))):
        height, width = grid.q
        x = random_map(grid.q)
        if case.embed is not None:
            embedded = encoding.embed(x, grid)
            for image in range(2):
                one = Grid(grid.q, valid=None if grid.valid is None else (grid.valid[image],))
                for row in range(height):
                    for column in range(width):
                        expected = x[image, row, column] + case.embed(encoding, row, column, one)
                        torch.testing.assert_close(
                            embedded[image, row, column], expected.double(), atol=1e-5, rtol=0
                        )
        if case.embed_content is not None:
            added = encoding.embed(x, grid) - x
            _compare_content(case.embed_content, encoding, x, added, grid)
        if case.value is not None:
            v = x.flatten(1, 2).unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2)
            added = encoding.value(v, grid).transpose(1, 2).reshape(x.shape)
            _compare_content(case.value, encoding, x, added, grid)
        if any((case.bias, case.logit, case.added_value)):
            q, k, v = random_qkv(grid)
            some = range(0, grid.num_queries, 1 + grid.num_queries // 20)
            expected = _attention_loop(case, encoding, q, k, v, grid, some)
            out = attend(q, k, v, [encoding], grid)[:, :, list(some)]
            torch.testing.assert_close(out, expected, atol=1e-6, rtol=1e-6)  # float32 coordinates


def _compare_content(
    formula: ContentFormula, encoding: PositionEncoding, x: Tensor, added: Tensor, grid: Grid
) -> None:
    for image in range(2):
        one = Grid(grid.q, valid=None if grid.valid is None else (grid.valid[image],))
        for row in range(grid.q[0]):
            for column in range(grid.q[1]):
                expected = formula(encoding, x[image], row, column, one)
                torch.testing.assert_close(added[image, row, column], expected)


@torch.no_grad()
def _attention_loop(
    case: Case,
    encoding: PositionEncoding,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grid: Grid,
    queries: Sequence[int],
) -> Tensor:
    """Outputs ``(B, h, len(queries), d)`` of some queries, pair by pair."""
    places = [(row, column) for row in range(grid.q[0]) for column in range(grid.q[1])]
    out = torch.empty_like(q[:, :, : len(queries)])
    for head in range(HEADS):
        for row, i in enumerate(queries):
            pairs = [(encoding, head, places[i], key) for key in places]
            added = [case.added_value(*pair) for pair in pairs] if case.added_value else []
            bias = [float(case.bias(*pair)) for pair in pairs] if case.bias else [0.0]
            for image in range(q.shape[0]):
                query, keys = q[image, head, i], k[image, head]
                if case.logit is None:
                    logits = keys @ query / HEAD_DIM**0.5 + torch.tensor(bias, dtype=q.dtype)
                else:
                    both = zip(pairs, keys, strict=True)
                    logits = torch.stack([case.logit(*pair, query, key) for pair, key in both])
                values = v[image, head] + (torch.stack(added) if case.added_value else 0)
                out[image, head, row] = logits.softmax(0) @ values
    return out


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
    check_autocast,
    check_gradients,
    check_formula,
    check_translation,
    check_padding,
    check_state,
    check_other_size,
    check_initial_values,
    check_no_decay,
    check_fused,
)
