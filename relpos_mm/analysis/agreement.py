"""Whether two computations agree, asked before their times are compared."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from relpos_mm.engine.errors import UserError

# Relative to the largest number of the reference. bfloat16 has eight bits: what passes its bar is
# no proof of equality, its error is a result of the benchmark like the time.
_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.2}
_AS_THE_BASE = 1.25
# A tensor below this share of the largest one counts relative to it: the gradient of a number that
# softmax ignores is pure rounding of a sum over all pairs of tokens, and in eight bits rounding of
# what is larger is in all others.
_SMALL = 0.1


def largest_error(results: Iterable[Tensor], reference: Iterable[Tensor]) -> float:
    """Largest difference of a list of tensors, each relative to the reference's largest number.

    Args:
        results: Tensors of one kind.
        reference: What they should be.
    """
    reference = list(reference)
    floor = _SMALL * max(expected.abs().max().item() for expected in reference)
    errors = []
    for result, expected in zip(results, reference, strict=True):
        size = expected.abs().max().clamp(min=floor)
        errors.append(((result.to(expected.dtype) - expected).abs().max() / size).item())
    return max(errors)


def disagreement(error: float, dtype: torch.dtype, base_error: float = 0.0) -> str | None:
    """Say why a result gets no time; None where rounding explains the error.

    Args:
        error: Of the result.
        dtype: Precision of the computation.
        base_error: What other code is off by in this precision, such as the base: torch sums
            gradients of norms over many tokens in bfloat16, whose error grows with the picture for
            everybody.
    """
    allowed = max(_TOLERANCE[dtype], _AS_THE_BASE * base_error)
    if error <= allowed:  # never for NaN
        return None
    return (
        f"the result differs from the reference by {error:.1e}, {dtype} explains "
        f"{allowed:.0e}; a wrong result has no time"
    )


def require_agreement(what: str, error: float, dtype: torch.dtype) -> float:
    """Return the error.

    Raises:
        UserError: It is larger than rounding explains.
    """
    if why := disagreement(error, dtype):
        raise UserError(f"{what}: {why}")
    return error
