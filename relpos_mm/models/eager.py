"""The attention matrix, built from content and position terms."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def content_logits(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """``q k^T * scale``, at least float32 so that bias, mask and softmax keep their precision."""
    if q.dtype == torch.float16:
        # The product of large activations leaves float16 (65504) before the softmax sees it.
        with torch.autocast(q.device.type, enabled=False):
            return (q.float() * scale) @ k.float().transpose(-2, -1)
    logits = (q * scale) @ k.transpose(-2, -1)
    return logits if logits.dtype == torch.float64 else logits.float()


def attention_matrix(
    q: Tensor,
    k: Tensor,
    factors: Sequence[tuple[Tensor, Tensor]],
    bias: Tensor | None,
    scale: float,
) -> Tensor:
    """Attention ``(B, h, Nq, Nk)`` from content, factored terms and a bias that holds the mask."""
    logits = content_logits(q, k, scale)
    for a, b in factors:
        logits = logits + (a @ b.transpose(-2, -1)).to(logits.dtype)
    if bias is not None:
        logits = logits + bias.to(logits.dtype)
    return logits.softmax(dim=-1)
