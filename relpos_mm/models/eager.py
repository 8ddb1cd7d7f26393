"""The attention matrix, built from content and position terms."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def content_logits(q: Tensor, k: Tensor, scale: float, bias: Tensor | None = None) -> Tensor:
    """``q k^T * scale + bias``, at least float32 so that bias, mask and softmax keep precision."""
    if q.dtype == torch.float16:
        # The product of large activations leaves float16 (65504) before the softmax sees it.
        with torch.autocast(q.device.type, enabled=False):
            return content_logits(q.float(), k.float(), scale, bias)
    # Scaling the product, not q, keeps no scaled copy of q for the backward pass.
    product = _widened(q @ k.transpose(-2, -1))
    if bias is None:
        return product if scale == 1 else product.mul_(scale)
    return torch.add(bias.to(product.dtype), product, alpha=scale)


def _widened(logits: Tensor) -> Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()


def factored_logits(
    q: Tensor, k: Tensor, factors: Sequence[tuple[Tensor, Tensor]], scale: float
) -> Tensor:
    """Content and factored terms as one product, whose channels cost less than a matrix each."""
    if q.dtype == torch.float16:
        with torch.autocast(q.device.type, enabled=False):
            wide = [(a.float(), b.float()) for a, b in factors]
            return factored_logits(q.float(), k.float(), wide, scale)
    left = [q * scale, *(a.to(q.dtype).expand(*q.shape[:3], -1) for a, _ in factors)]
    right = [k, *(b.to(k.dtype).expand(*k.shape[:3], -1) for _, b in factors)]
    return content_logits(torch.cat(left, dim=-1), torch.cat(right, dim=-1), 1.0)


def biased_logits(q: Tensor, k: Tensor, bias: Tensor, scale: float) -> Tensor:
    """``q k^T * scale + bias`` as one product that adds to a copy of the bias.

    For inference in float32 or better: with autograd the two steps are faster.
    """
    logits = bias.to(q.dtype).expand(*q.shape[:3], k.shape[2])
    logits = logits.clone(memory_format=torch.contiguous_format)
    k = k.flatten(0, 1).transpose(1, 2)
    return logits.flatten(0, 1).baddbmm_(q.flatten(0, 1), k, alpha=scale).view(logits.shape)


def attention_matrix(
    q: Tensor,
    k: Tensor,
    factors: Sequence[tuple[Tensor, Tensor]],
    bias: Tensor | None,
    scale: float,
) -> Tensor:
    """Attention ``(B, h, Nq, Nk)`` from content, factored terms and a bias that holds the mask."""
    if bias is not None and not factors and _adds_in_product(q):
        return biased_logits(q, k, bias, scale).softmax(dim=-1)
    if not factors:
        return content_logits(q, k, scale, bias).softmax(dim=-1)
    logits = factored_logits(q, k, factors, scale)
    if bias is not None:
        logits += bias.to(logits.dtype)
    return logits.softmax(dim=-1)


def _adds_in_product(q: Tensor) -> bool:
    """Whether :func:`biased_logits` keeps the precision of the bias, and pays."""
    narrow = q.dtype in (torch.float16, torch.bfloat16) or torch.is_autocast_enabled(q.device.type)
    return not narrow and not torch.is_grad_enabled()
