"""Which form of attention DETR takes with and without dropout, and that all are the same."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from relpos_mm.encodings import ContextualRpe, Grid, position_modules
from relpos_mm.models import RelPosDetrEncoder, attend, attention, sliced

from .detr_tools import IRPE, SINES, encoder

SIZE = (23, 24)  # 552 tokens, enough for blocks
EVERY_SIDE = {**IRPE, "rpe_on": "qkv"}


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry per layer that works in blocks."""
    made: list[int] = []

    def counted(*args: object) -> Tensor:
        made.append(1)
        return sliced.sliced_attention(*args)

    monkeypatch.setattr(attention, "sliced_attention", counted)
    return made


def model(dropout: float) -> RelPosDetrEncoder:
    torch.manual_seed(0)
    made = encoder([SINES, EVERY_SIDE], dropout=dropout)
    for encoding in position_modules(made).values():
        for parameter in encoding.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    return made


def batch() -> tuple[Tensor, Grid, Tensor]:
    """Two maps, the second one padded at the bottom and right."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, SIZE[0] * SIZE[1], 24, generator=generator, dtype=torch.float64)
    valid = (SIZE, (17, 20))
    hidden = torch.zeros(2, *SIZE, dtype=torch.bool)
    hidden[1, 17:] = hidden[1, :, 20:] = True
    return x, Grid(SIZE, valid=valid), hidden.flatten(1)


def run(made: RelPosDetrEncoder) -> tuple[Tensor, list[Tensor]]:
    """Output on the content, and the gradients of all parameters."""
    x, grid, hidden = batch()
    out = made(x, grid, key_padding_mask=hidden)[~hidden]
    made.zero_grad()
    out.square().sum().backward()
    return out, [parameter.grad for parameter in made.parameters()]


def test_dropout_decides_between_blocks_and_one_matrix(blocks: list[int]) -> None:
    made = model(dropout=0.1)
    run(made.train())
    assert blocks == []
    run(made.eval())
    assert blocks == [1, 1]
    run(model(dropout=0.0).train())
    assert blocks == [1] * 4


@pytest.mark.parametrize(("dropout", "training"), [(0.1, False), (0.0, True)])
def test_blocks_give_the_detector_what_one_matrix_gives(
    blocks: list[int], monkeypatch: pytest.MonkeyPatch, dropout: float, training: bool
) -> None:
    out, grads = run(model(dropout).train(training))
    assert blocks == [1, 1]
    monkeypatch.setattr(attention, "worth_slicing", lambda *args: False)
    expected, expected_grads = run(model(dropout).train(training))
    assert blocks == [1, 1]
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(grads, expected_grads)


def rpe() -> ContextualRpe:
    made = ContextualRpe(embed_dims=24, num_heads=3, ratio=2.0, rpe_on="qkv").double()
    torch.manual_seed(2)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    return made


def test_a_dropped_weight_is_dropped_from_content_and_value_terms_alike() -> None:
    """Against attention times a mask of the same draw: outputs and all gradients."""
    rate, grid, encoding = 0.4, Grid((4, 5)), rpe()
    torch.manual_seed(3)
    q, k, v = (torch.randn(2, 3, 20, 8, dtype=torch.float64, requires_grad=True) for _ in "qkv")

    torch.manual_seed(4)
    out = attend(q, k, v, [encoding], grid, dropout=rate)
    leaves = [q, k, v, *encoding.parameters()]
    grads = torch.autograd.grad(out.square().sum(), leaves)

    keys_alone = ContextualRpe(embed_dims=24, num_heads=3, ratio=2.0, rpe_on="qk").double()
    keys_alone.rpe_q, keys_alone.rpe_k = encoding.rpe_q, encoding.rpe_k
    eye = torch.eye(20, dtype=torch.float64).expand(2, 3, -1, -1)
    attn = attend(q, k, eye, [keys_alone], grid)
    torch.manual_seed(4)
    kept = attn * F.dropout(torch.ones_like(attn), rate)
    expected = kept @ v + encoding.value_attn(kept, v, grid)
    expected_grads = torch.autograd.grad(expected.square().sum(), leaves)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(grads, expected_grads)


@pytest.mark.parametrize("impl", ["eager", "fused"])
def test_the_share_that_is_dropped_and_the_mean_that_stays(impl: str) -> None:
    rate, grid = 0.3, Grid((4, 5))
    encoding = ContextualRpe(embed_dims=24, num_heads=3, ratio=2.0, init="xavier").double()
    torch.manual_seed(5)
    q, k = torch.randn(2, 1, 3, 20, 8, dtype=torch.float64)
    eye = torch.eye(20, dtype=torch.float64).expand(1, 3, -1, -1)
    weights = attend(q, k, eye, [encoding], grid, impl=impl)
    draws = torch.stack(
        [attend(q, k, eye, [encoding], grid, dropout=rate, impl=impl) for _ in range(300)]
    )
    kept = draws != 0
    # 360,000 draws: the share is known to 0.1 %, each mean of 300 to some percent of a weight.
    assert abs(1 - kept.double().mean().item() - rate) < 0.005
    torch.testing.assert_close(draws, kept * weights / (1 - rate))
    assert (draws.mean(0) / weights - 1).abs().max() < 0.2
