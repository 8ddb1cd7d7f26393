"""Attention in blocks equals attention with one matrix."""

from __future__ import annotations

import pytest
import torch

from relpos_mm.encodings import ContextualRpe, DecomposedBias, Grid, RelativeBias
from relpos_mm.models import attend, attention, sliced
from tests.encodings.memory import LargestTensor

SIZE = (23, 24)  # 552 tokens: several blocks, the last one shorter


def tensors(batch: int = 2, requires_grad: bool = True) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    n = SIZE[0] * SIZE[1]
    make = [torch.randn(batch, 2, n, 4, generator=generator, dtype=torch.float64) for _ in "qkv"]
    return [tensor.requires_grad_(requires_grad) for tensor in make]


def rpe(**options: object) -> ContextualRpe:
    encoding = ContextualRpe(embed_dims=8, num_heads=2, ratio=2.0, **options).double()
    torch.manual_seed(1)
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter)
    return encoding


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry per call that really works in blocks."""
    made: list[int] = []

    def counted(*args: object) -> torch.Tensor:
        made.append(1)
        return sliced.sliced_attention(*args)

    monkeypatch.setattr(attention, "sliced_attention", counted)
    return made


@pytest.mark.parametrize(
    ("options", "masked"),
    [
        ({"rpe_on": "k"}, False),
        ({"rpe_on": "qkv", "shared_head": False}, True),
        ({"rpe_on": "qv", "mapping": "cross"}, False),
        ({"rpe_on": "v"}, True),
    ],
)
def test_blocks_equal_one_matrix(calls: list[int], options, masked: bool) -> None:
    encoding, grid = rpe(**options), Grid(SIZE)
    hidden = None
    if masked:
        hidden = torch.zeros(2, grid.num_keys, dtype=torch.bool)
        hidden[1, -50:] = True
    results = []
    for impl in ("eager", "auto"):
        inputs = tensors()
        encoding.zero_grad()
        out = attend(*inputs, [encoding], grid, key_padding_mask=hidden, scale=0.4, impl=impl)
        out.square().sum().backward()
        results.append([out, *(t.grad for t in (*inputs, *encoding.parameters()))])
    assert calls == [1]
    torch.testing.assert_close(results[0], results[1])


def test_prefix_tokens_with_a_bucket(calls: list[int]) -> None:
    encoding, grid = rpe(rpe_on="kv", skip=1), Grid((22, 25), prefix=2)
    outs = [attend(*tensors(1, False), [encoding], grid, impl=impl) for impl in ("eager", "auto")]
    assert calls == [1]
    torch.testing.assert_close(*outs)


def test_a_mask_may_differ_per_image(calls: list[int]) -> None:
    mask = torch.rand(2, 1, SIZE[0] * SIZE[1], SIZE[0] * SIZE[1]) > 0.3
    results = [
        attend(*tensors(requires_grad=False), [rpe()], Grid(SIZE), mask=mask, impl=impl)
        for impl in ("eager", "auto")
    ]
    assert calls == [1]
    torch.testing.assert_close(*results)


def test_factored_terms_become_channels_of_the_blocks(calls: list[int]) -> None:
    decomposed = DecomposedBias(embed_dims=8, num_heads=2, window_size=SIZE).double()
    encodings = [rpe(), decomposed]
    torch.nn.init.normal_(decomposed.rel_pos_h)
    torch.nn.init.normal_(decomposed.rel_pos_w)
    parameters = [p for encoding in encodings for p in encoding.parameters()]
    results = []
    for impl in ("eager", "auto"):
        inputs = tensors()
        out = attend(*inputs, encodings, Grid(SIZE), scale=0.4, impl=impl)
        grads = torch.autograd.grad(out.square().sum(), [*inputs, *parameters])
        results.append([out, *grads])
    assert calls == [1]
    torch.testing.assert_close(*results)


def test_factored_terms_need_no_matrix_of_all_pairs() -> None:
    """A block, and queries and keys with a channel per row and column, are the largest tensors."""
    side, width = 64, 4  # ViTDet at 1024 x 1024
    torch.manual_seed(0)
    encoding = DecomposedBias(embed_dims=width, num_heads=1, window_size=side)
    tokens = [torch.randn(1, 1, side**2, width, requires_grad=True) for _ in "qkv"]
    with LargestTensor() as largest:
        attend(*tokens, [encoding], Grid((side, side))).sum().backward()
    per_token = 4 * side**2 * (width + 2 * side)
    assert largest.num_bytes <= max(per_token, 4 * sliced._BLOCK) < 4 * side**4 / 9


def test_other_calls_take_the_general_path(calls: list[int]) -> None:
    small = [t[:, :, :30] for t in tensors(1, False)]
    attend(*small, [rpe()], Grid((5, 6)))
    table = RelativeBias(num_heads=2, window_size=SIZE).double()
    attend(*tensors(1, False), [rpe(), table], Grid(SIZE))  # its gradient needs the whole matrix
    attend(*(t.bfloat16() for t in tensors(1, False)), [rpe()], Grid(SIZE))
    assert calls == []
    with torch.no_grad():
        attend(*tensors(1, False), [rpe(), table], Grid(SIZE))
    assert calls == [1]


def test_second_derivatives_are_refused_here_and_exist_with_eager() -> None:
    encoding, inputs = rpe(), tensors(1)
    out = attend(*inputs, [encoding], Grid(SIZE))
    with pytest.raises(RuntimeError, match="need impl='eager'"):
        torch.autograd.grad(out.sum(), inputs[0], create_graph=True)
    out = attend(*inputs, [encoding], Grid(SIZE), impl="eager")
    (grad,) = torch.autograd.grad(out.sum(), inputs[0], create_graph=True)
    grad.sum().backward()
    assert inputs[1].grad.abs().max() > 0
