"""The relative bias without the content term, row "w/o app." of Swin's Table 4."""

from __future__ import annotations

import pytest
import torch

from relpos_mm.encodings import Grid, RelativeBias, ShawRelative, position_slug
from relpos_mm.models import attend


def bias_alone() -> RelativeBias:
    torch.manual_seed(0)
    encoding = RelativeBias(num_heads=2, window_size=(3, 4), content=False).double()
    torch.nn.init.normal_(encoding.relative_position_bias_table)
    return encoding


@pytest.mark.parametrize("impl", ["eager", "fused"])
@pytest.mark.parametrize("scale", [None, 0.3, 5.0])
def test_logits_are_the_bias(scale: float | None, impl: str) -> None:
    encoding, grid = bias_alone(), Grid((3, 4))
    q, k, v = (torch.randn(2, 2, 12, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    out = attend(q, k, v, [encoding], grid, scale=scale, impl=impl)
    expected = encoding.bias(q, k, grid, 1.0).softmax(-1) @ v
    assert torch.allclose(out, expected)
    out.square().sum().backward()
    assert q.grad is not None
    assert not q.grad.any()
    assert not k.grad.any()
    assert encoding.relative_position_bias_table.grad.ne(0).all()


def test_infinite_content_does_not_matter() -> None:
    encoding, grid = bias_alone().float(), Grid((3, 4))
    q, k, v = torch.randn(3, 1, 2, 12, 4)
    q[0, 0, 0, 0] = torch.inf
    assert torch.isfinite(attend(q, k, v, [encoding], grid)).all()


def test_other_encodings_still_read_the_content() -> None:
    encoding, grid = bias_alone(), Grid((3, 4))
    shaw = ShawRelative(embed_dims=8, num_heads=2).double()
    q, k, v = torch.randn(3, 1, 2, 12, 4, dtype=torch.float64)
    for order in ([encoding, shaw], [shaw, encoding]):
        logits = encoding.bias(q, k, grid, 0.5) + shaw.bias(q, k, grid, 0.5)
        assert torch.allclose(attend(q, k, v, order, grid), logits.softmax(-1) @ v)


def test_prefix_queries_keep_their_content() -> None:
    encoding, grid = bias_alone(), Grid((3, 4), prefix=1)
    q, k, v = torch.randn(3, 1, 2, 13, 4, dtype=torch.float64)
    out = attend(q, k, v, [encoding], grid)
    expected = (q[:, :, :1] @ k.transpose(2, 3) / 2).softmax(-1) @ v
    assert torch.allclose(out[:, :, :1], expected)


def test_the_row_has_a_slug_of_its_own() -> None:
    absolute, alone = {"type": "AbsoluteTable"}, {"type": "RelativeBias", "content": False}
    assert position_slug([alone]) == "biasonly"
    assert position_slug([alone, absolute]) == "abs_biasonly"
    assert position_slug([{"type": "RelativeBias", "content": True}]) == "relonly"


def test_content_stays_by_default() -> None:
    q, k, _ = torch.randn(3, 1, 2, 12, 4)
    rotated = RelativeBias(num_heads=2, window_size=(3, 4)).rotate(q, k, Grid((3, 4)))
    assert rotated[0] is q
