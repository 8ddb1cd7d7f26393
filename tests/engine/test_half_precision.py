"""Half precision in training: finite, exact where it must be, and of one type throughout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from relpos_mm.engine import UserError

from .toys import ABSREL, RELONLY, ToyModel, log_of, toy_runner


def batch(size: int = 18) -> Tensor:
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_b015_logits_beyond_float16_stay_finite(dtype: torch.dtype) -> None:
    """Weights of q and k times 40: outputs and gradients of 20 steps are finite."""
    torch.manual_seed(0)
    model = ToyModel(RELONLY, norm="Identity")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "qkv.weight" in name:
                parameter *= 40 / parameter.std()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(20):
        with torch.autocast("cpu", dtype=dtype):
            losses = model(batch(), torch.tensor([0, 1]), mode="loss")
        loss = sum(losses.values())
        assert loss.isfinite()
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
        optimizer.step()


@pytest.mark.parametrize("position", [[], ABSREL], ids=["none", "absrel"])
@pytest.mark.parametrize("with_cp", [False, True])
def test_b062_no_dtype_is_promoted(position: list[dict[str, Any]], with_cp: bool) -> None:
    """Pure bfloat16, shifted and padded windows: the output has the input's type, near float32."""
    model = ToyModel(position, norm="Identity", with_cp=with_cp, depths=(2, 2)).backbone
    exact = model(batch())[0]
    half = model.bfloat16()(batch().bfloat16())[0]
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), exact, rtol=5e-2, atol=5e-2)


def test_b064_resizing_an_embedding_works_in_bfloat16() -> None:
    """Bicubic resizing to another picture size under autocast equals the float32 one nearly."""
    model = ToyModel([{"type": "AbsoluteTable"}], norm="Identity").backbone.eval()
    exact = model(batch(28))[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = model(batch(28))[0]
    torch.testing.assert_close(half.float(), exact, rtol=5e-2, atol=5e-2)


def test_b061_a_collapsing_loss_is_named_with_bfloat16(tmp_path: Path) -> None:
    """The hook that stops a run works on what the wrapper returns."""
    runner = toy_runner(
        tmp_path,
        model={"type": "ToyModel", "poison_at": 2},
        custom_hooks=[{"type": "NonFiniteLossHook"}],
        optim_wrapper={
            "type": "Bfloat16OptimWrapper",
            "optimizer": {"type": "AdamW", "lr": 0.001},
        },
    )
    with pytest.raises(UserError, match="iteration 3: loss_size = nan"):
        runner.train()
    assert "Traceback" not in log_of(runner)
