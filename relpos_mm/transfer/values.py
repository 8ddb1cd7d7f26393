"""Whether the values of a tensor can be weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from relpos_mm.transfer.errors import TransferError


def value_fault(value: Tensor) -> str:
    """What is wrong with the values of a weight; empty when nothing is."""
    if value.is_meta or value.layout != torch.strided:
        what = "without values" if value.is_meta else "stored sparsely"
        return f"a tensor {what}, which is no weight; save the file anew with plain tensors"
    if not value.is_floating_point():
        return f"{_name(value)} in the file, which is no weight; a quantised file cannot be used"
    wrong = value.numel() - int(torch.isfinite(value.float()).sum())
    if wrong:
        return f"{wrong} of {value.numel()} values are NaN or infinite; the file's training failed"
    return ""


def require_values(state: Mapping[str, Tensor]) -> None:
    """Refuse tensors that cannot be weights; index buffers and counters are whole numbers.

    Raises:
        TransferError: Names the first one and what is wrong with it.
    """
    for key, value in state.items():
        if value.is_floating_point() and (fault := value_fault(value)):
            raise TransferError(f"{key}: {fault}")


def precision_note(value: Tensor) -> str:
    """What the report says of weights in another precision than float32."""
    return "" if value.dtype == torch.float32 else f", stored as {_name(value)}"


def _name(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")
