"""``attend`` with toy encodings that use each hook, and at the edges of precision."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from relpos_mm.encodings import Grid, PositionEncoding, RelativeBias
from relpos_mm.models import attend

HEADS, DIM = 2, 4


class Factored(PositionEncoding):
    """A bias that exists as ``a @ b^T`` only: content times one vector per key row."""

    slug = "toy"

    def __init__(self, rows: int = 6, as_dense: bool = False) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(rows, DIM, dtype=torch.float64))
        self.as_dense = as_dense

    def bias(self, q: Tensor, k: Tensor, grid: Grid, scale: float):
        row_of_key = torch.arange(grid.k[0]).repeat_interleave(grid.k[1])
        b = nn.functional.one_hot(row_of_key, grid.k[0]).to(q.dtype)[None, None]
        a = q @ self.vectors[: grid.k[0]].to(q.dtype).t()
        return a @ b.transpose(-2, -1) if self.as_dense else (a, b)


class Rotated(PositionEncoding):
    """Turns q and k; tells bias hooks apart that see them turned."""

    slug = "toy"

    def __init__(self, sign: float = -1.0) -> None:
        super().__init__()
        self.sign = sign

    def rotate(self, q: Tensor, k: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
        signs = torch.ones(q.shape[2], 1, dtype=q.dtype)
        signs[::2] = self.sign
        return q * signs, k * signs[: k.shape[2]]


class Values(PositionEncoding):
    """Adds half the value of the map, and the value under swapped attention."""

    slug = "toy"
    needs_attn = True

    def value(self, v: Tensor, grid: Grid) -> Tensor:
        return v / 2

    def value_attn(self, attn: Tensor, v: Tensor, grid: Grid) -> Tensor:
        return attn.flip(-1) @ v


def inputs(grid: Grid, batch: int = 2, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    torch.manual_seed(0)
    sizes = (grid.num_queries, grid.num_keys, grid.num_keys)
    return [torch.randn(batch, HEADS, n, DIM, dtype=torch.float64).to(dtype) for n in sizes]


def plain(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | float = 0.0) -> Tensor:
    return ((q @ k.transpose(-2, -1)) * DIM**-0.5 + bias).softmax(-1) @ v


def relative(window: tuple[int, int] = (6, 6)) -> RelativeBias:
    encoding = RelativeBias(num_heads=HEADS, window_size=window).double()
    nn.init.normal_(encoding.relative_position_bias_table)
    return encoding


@pytest.mark.parametrize("impl", ["auto", "eager", "fused"])
def test_without_encodings_it_is_softmax_attention(impl: str) -> None:
    grid = Grid((3, 4))
    q, k, v = inputs(grid)
    torch.testing.assert_close(attend(q, k, v, [], grid, impl=impl), plain(q, k, v))
    doubled = attend(q, k, v, [], grid, scale=2 * DIM**-0.5, impl=impl)
    torch.testing.assert_close(doubled, plain(2 * q, k, v))


@pytest.mark.parametrize("impl", ["eager", "fused"])
@pytest.mark.parametrize(
    "grid", [Grid((3, 4)), Grid((2, 2), k=(6, 4)), Grid((3, 4), prefix=2)], ids=str
)
def test_a_factored_bias_equals_the_dense_one(grid: Grid, impl: str) -> None:
    factored = Factored()
    dense = Factored(as_dense=True)
    dense.load_state_dict(factored.state_dict())
    results = []
    for encoding, how in ((dense, "eager"), (factored, impl)):
        tensors = [t.requires_grad_() for t in inputs(grid)]
        out = attend(*tensors, [encoding, relative()], grid, scale=0.7, impl=how)
        out.square().sum().backward()
        results.append([out, encoding.vectors.grad, *(t.grad for t in tensors)])
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("impl", ["eager", "fused"])
def test_prefix_tokens_meet_no_encoding(impl: str) -> None:
    """Every hook of a grid with prefix sees what it sees without; prefix logits are content."""
    grid, bare = Grid((3, 4), prefix=2), Grid((3, 4))
    q, k, v = inputs(grid)
    encodings = [relative(), Rotated()]
    inner_q, inner_k = Rotated().rotate(q[:, :, 2:], k[:, :, 2:], bare)
    q_turned, k_turned = torch.cat((q[:, :, :2], inner_q), 2), torch.cat((k[:, :, :2], inner_k), 2)
    bias = torch.zeros(1, HEADS, 14, 14, dtype=torch.float64)
    bias[..., 2:, 2:] = encodings[0].bias(q[:, :, 2:], k[:, :, 2:], bare, 1.0)
    expected = plain(q_turned, k_turned, v, bias)
    torch.testing.assert_close(attend(q, k, v, encodings, grid, impl=impl), expected)


def test_the_list_order_does_not_matter_and_bias_sees_raw_tokens() -> None:
    grid = Grid((3, 4))
    q, k, v = inputs(grid)
    encodings = [Factored(), Rotated(), relative(), Values()]
    one = attend(q, k, v, encodings, grid)
    torch.testing.assert_close(attend(q, k, v, encodings[::-1], grid), one)


def test_value_hooks_add_up_and_spare_the_prefix() -> None:
    grid = Grid((2, 3), prefix=1)
    q, k, v = inputs(grid)
    attn = (q @ k.transpose(-2, -1) * DIM**-0.5).softmax(-1)
    expected = attn @ v + attn.flip(-1) @ v
    expected[:, :, 1:] += v[:, :, 1:] / 2
    torch.testing.assert_close(attend(q, k, v, [Values()], grid), expected)


def test_an_encoding_that_needs_attention_is_never_fused() -> None:
    grid = Grid((2, 3))
    with pytest.raises(ValueError, match="values needs the attention matrix: use 'eager'"):
        attend(*inputs(grid), [Values()], grid, impl="fused")


def test_token_counts_that_do_not_fit_the_grid_are_refused() -> None:
    with pytest.raises(ValueError, match=r"12 queries and 12 keys do not fit .* 13 and 13"):
        attend(*inputs(Grid((3, 4))), [], Grid((3, 4), prefix=1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"impl": "flash"}, "impl must be one of 'auto', 'eager', 'fused', 'flex', got"),
        ({"v": torch.zeros(2, 1, 5, 4)}, "5 values for 6 keys"),
        ({"grid": Grid((2, 3), valid=((1, 1),) * 3)}, "3 regions for 2 images"),
        ({"key_padding_mask": torch.zeros(6, 2).bool()}, r"\(6, 2\) must be \(B, Nk\) = \(2, 6\)"),
        ({"mask": torch.ones(6, 6).long()}, r"mask is torch.int64; give bool \(True = may attend"),
        ({"mask": torch.ones(1, 1, 1, 6, 6)}, r"mask \(1, 1, 1, 6, 6\) must go into \(B, h, Nq"),
    ],
)
def test_calls_that_contradict_themselves_are_refused(changes: dict, message: str) -> None:
    tokens = torch.zeros(2, 1, 6, 4)
    call = {"q": tokens, "k": tokens, "v": tokens, "encodings": [], "grid": Grid((2, 3))}
    with pytest.raises(ValueError, match=message):
        attend(**{**call, **changes})


@pytest.mark.parametrize("impl", ["eager", "fused"])
def test_masks_of_every_form_hide_the_same(impl: str) -> None:
    """Bool, additive and key masks; one mask per window repeats over an image-major batch."""
    grid = Grid((3, 4))
    q, k, v = inputs(grid, batch=6)
    encodings = [relative(), Factored()]
    per_window = torch.rand(3, 1, 12, 12) > 0.4
    per_window |= torch.eye(12, dtype=torch.bool)
    full = per_window.repeat(2, 1, 1, 1)
    expected = attend(q, k, v, encodings, grid, mask=full)
    additive = torch.zeros(3, 1, 12, 12).masked_fill(~per_window, -torch.inf)
    for mask in (per_window, additive, additive.double().clamp(min=-1e5)):
        out = attend(q, k, v, encodings, grid, mask=mask, impl=impl)
        torch.testing.assert_close(out, expected)

    padding = torch.zeros(6, 12, dtype=torch.bool)
    padding[:, 9:] = True
    expected = attend(q, k, v, encodings, grid, mask=~padding[:, None, None])
    for mask in (None, torch.zeros(12, 12), torch.ones(1, 12, dtype=torch.bool)):
        out = attend(q, k, v, encodings, grid, mask=mask, key_padding_mask=padding, impl=impl)
        torch.testing.assert_close(out, expected)
    with pytest.raises(ValueError, match="4 masks for a batch of 6"):
        attend(q, k, v, encodings, grid, mask=torch.ones(4, 1, 12, 12, dtype=torch.bool))


class Plain(PositionEncoding):
    """The bias of another encoding with as few axes as broadcasting needs."""

    slug = "toy"

    def bias(self, q: Tensor, k: Tensor, grid: Grid, scale: float) -> Tensor:
        return relative().bias(q, k, grid, scale)[0].detach()


@pytest.mark.parametrize("impl", ["eager", "fused"])
def test_a_bias_without_a_batch_axis_is_one_for_all_windows(impl: str) -> None:
    grid = Grid((3, 4))
    mask = (torch.rand(3, 1, 12, 12) > 0.4) | torch.eye(12, dtype=torch.bool)
    q, k, v = inputs(grid, batch=6)
    torch.manual_seed(1)
    bias = relative().bias(q, k, grid, 1.0)
    hidden = torch.zeros(6, 1, 12, 12).double().masked_fill(~mask.repeat(2, 1, 1, 1), -torch.inf)
    torch.manual_seed(1)
    out = attend(q, k, v, [Plain()], grid, mask=mask, impl=impl)
    torch.testing.assert_close(out, plain(q, k, v, bias + hidden))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("impl", ["eager", "fused"])
@pytest.mark.parametrize("additive", [False, True])
def test_a_row_without_visible_keys_stays_finite(dtype, impl: str, additive: bool) -> None:
    grid = Grid((3, 4))
    q, k, v = inputs(grid, dtype=dtype)
    encoding = relative().to(dtype)
    with torch.no_grad():
        encoding.relative_position_bias_table -= 20  # would push a smallest number to infinity
    mask = torch.ones(1, 1, 12, 12, dtype=torch.bool)
    mask[..., 5, :] = False
    if additive:
        mask = torch.zeros(1, 1, 12, 12).masked_fill(~mask, -torch.inf)
    tensors = [t.requires_grad_() for t in (q, k, v)]
    out = attend(*tensors, [encoding], grid, mask=mask, impl=impl)
    assert torch.isfinite(out).all()
    out.float().square().sum().backward()
    assert all(torch.isfinite(t.grad).all() for t in tensors)
    if impl == "eager":
        mean = v.double().mean(2)
        torch.testing.assert_close(out[:, :, 5].double(), mean, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("additive", [False, True])
def test_hidden_keys_stay_hidden_behind_logits_beyond_float16(additive: bool) -> None:
    """Logits of 200000 are larger than the smallest float16: a mask in that dtype would leak."""
    grid = Grid((1, 3))
    q = torch.full((1, 1, 3, DIM), 300.0, dtype=torch.float16)
    k = torch.full((1, 1, 3, DIM), 300.0, dtype=torch.float16)
    k[:, :, 0] = -300.0
    v = torch.eye(3, dtype=torch.float16)[None, None]
    mask = torch.tensor([[True, False, False]]).expand(3, 3)
    if additive:
        mask = torch.zeros(3, 3).masked_fill(~mask, -torch.inf)
    out = attend(q, k, v, [], grid, mask=mask)
    assert out[0, 0].tolist() == [[1, 0, 0]] * 3


def test_large_logits_of_half_precision_are_finite_in_training() -> None:
    grid = Grid((3, 4))
    for amp in (torch.float16, torch.bfloat16):
        tensors = [(200 * t).requires_grad_() for t in inputs(grid, dtype=torch.float32)]
        with torch.autocast("cpu", amp):
            halves = [t.to(amp) for t in tensors]
            out = attend(*halves, [relative().float()], grid)
        assert out.dtype == amp
        out.float().sum().backward()
        assert all(torch.isfinite(t.grad).all() for t in tensors)
