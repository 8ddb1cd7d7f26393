"""Whether two computations agree, asked before their times are compared."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from relpos_mm.engine.errors import UserError

# Relative to the largest number of the reference. Half precision sums gradients in eight bits.
_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.1, torch.float16: 0.02}


def largest_error(results: Iterable[Tensor], reference: Iterable[Tensor]) -> float:
    """Largest difference of a list of tensors, each relative to the reference's largest number.

    A tensor that is next to zero counts relative to a hundredth of the largest one: the gradient
    of a number that softmax ignores is pure rounding.
    """
    reference = list(reference)
    floor = 1e-2 * max(expected.abs().max().item() for expected in reference)
    errors = []
    for result, expected in zip(results, reference, strict=True):
        size = expected.abs().max().clamp(min=floor)
        errors.append(((result.to(expected.dtype) - expected).abs().max() / size).item())
    return max(errors)


def require_agreement(what: str, error: float, dtype: torch.dtype) -> float:
    """Return the error.

    Raises:
        UserError: It is larger than rounding explains.
    """
    if not error <= _TOLERANCE[dtype]:  # also for NaN
        raise UserError(
            f"{what}: the result differs from the reference by {error:.1e}, {dtype} explains "
            f"{_TOLERANCE[dtype]:.0e}; a wrong result has no time"
        )
    return error
