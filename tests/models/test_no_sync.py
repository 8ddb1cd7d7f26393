"""A forward pass waits for nothing: what would be a copy or a question to a GPU does not happen."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from relpos_mm.analysis.catalogue import CATALOGUE, position_of
from relpos_mm.models import RelPosSwin
from tests.models.tiny import picture, tiny

# A number read by Python, a tensor made of Python's numbers, a result of unknown size.
_WAITS = ("_local_scalar_dense", "lift_fresh", "nonzero", "masked_select", "unique", "is_nonzero")


class NoSync(TorchDispatchMode):
    """Raise at every operation that a CUDA device would have to be waited for."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        indices = args[1] if func.__name__.startswith("index.") else ()
        by_mask = any(i is not None and i.dtype == torch.bool for i in indices)
        if by_mask or any(word in func.__name__ for word in _WAITS):
            raise AssertionError(f"{func.__name__} waits for the device")
        return func(*args, **(kwargs or {}))


def model_of(name: str) -> RelPosSwin:
    return tiny(
        embed_dims=32,  # irpe and rotary encodings need heads of some width
        depths=(1, 2),
        num_heads=(2, 4),
        out_indices=(0, 1),
        position=position_of(name),
    )


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_the_second_forward_pass_waits_for_nothing(name: str) -> None:
    model, x = model_of(name).train(), picture(60, 92, batch=2)
    expected = model(x)
    # A tensor made without naming a device would stand on the CPU, here on one without numbers.
    with torch.device("meta"), NoSync():
        found = model(x)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_the_guard_sees_what_waits() -> None:
    x = torch.ones(3)
    for wait in (
        lambda: x.sum().item(),
        lambda: bool(x.all()),
        lambda: torch.tensor([1.0, 2.0]),
        lambda: x.new_tensor([1.0]),
        lambda: x[x > 0],
        lambda: x.unique(),
    ):
        with pytest.raises(AssertionError, match="waits for the device"), NoSync():
            wait()
