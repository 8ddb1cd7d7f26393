"""Layers on pieces of a map equal layers on the whole map."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from relpos_mm.models.pieces import in_pieces


class Counting(nn.Module):
    """Two linear layers that note how many tokens each call has."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 4)).double()
        self.tokens: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.tokens.append(x.shape[:-1].numel())
        return self.layers(x)


def grads(module: Counting, x: Tensor, out: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(out.square().sum(), [x, *module.parameters()]))


@pytest.mark.parametrize("size", [(1, 64, 64), (2, 61, 43)])
def test_large_maps_go_in_pieces(size: tuple[int, ...]) -> None:
    module = Counting()
    x = torch.randn(*size, 4, dtype=torch.float64, requires_grad=True)
    out = in_pieces(module, x)
    assert sum(module.tokens) == x.shape[:-1].numel()
    assert max(module.tokens) == 1024
    expected = module.layers(x)
    assert out.shape == expected.shape
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(grads(module, x, out), grads(module, x, expected))


def test_small_maps_stay_whole() -> None:
    module = Counting()
    in_pieces(module, torch.randn(1, 63, 65, 4, dtype=torch.float64))
    assert module.tokens == [63 * 65]


def test_a_trace_holds_no_piece_count() -> None:
    """Traced on a large map, the layers take any other map."""
    module = Counting().requires_grad_(False)
    example, other = (torch.randn(1, *size, 4).double() for size in ((80, 80), (70, 90)))
    traced = torch.jit.trace(lambda x: in_pieces(module, x), example)
    torch.testing.assert_close(traced(other), module.layers(other))
