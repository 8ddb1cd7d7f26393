"""The attention matrix, whole or one (image, head) slice at a time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.utils.checkpoint as cp
from torch import Tensor

from relpos_mm.encodings.lookup import Lookup


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


def worth_slicing(q: Tensor, k: Tensor, lookups: Sequence[Lookup], bias: Tensor | None) -> bool:
    """Whether :func:`sliced_attention` is the faster form.

    Measured on a CPU: below some 500 tokens there is nothing to gain. A bias with a gradient would
    need that gradient for every slice at once.
    """
    large = q.shape[2] * k.shape[2] >= 2**18
    return (
        bool(lookups) and large and not q.is_cuda and not (bias is not None and bias.requires_grad)
    )


def sliced_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lookups: Sequence[Lookup],
    bias: Tensor | None,
    scale: float,
) -> Tensor:
    """Attention whose matrices ``(Nq, Nk)`` live one at a time and stay in the processor's cache.

    Lookups are expanded slice by slice; the backward pass computes a slice again instead of
    keeping it. On 25 x 38 tokens this takes less time than attention without encoding that builds
    its whole matrix, and a sixth of its memory.
    """
    heads = q.shape[:2]

    def attend_slice(
        q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, *values: Tensor
    ) -> Tensor:
        logits = content_logits(q, k, scale)
        for lookup, rows in zip(lookups, values, strict=True):
            term = rows.gather(-1, lookup.index).to(logits.dtype)
            logits += term.t() if lookup.by_key else term
        if bias is not None:
            logits += bias.to(logits.dtype)
        return logits.softmax(dim=-1).to(v.dtype) @ v

    inputs = [_slices(tensor, heads) for tensor in (q, k, v)]
    masks = [None] * (heads[0] * heads[1]) if bias is None else _slices(bias, heads)
    rows = [_slices(lookup.values, heads) for lookup in lookups]
    slices = zip(*inputs, masks, *rows, strict=True)
    if torch.is_grad_enabled():
        outs = [
            cp.checkpoint(attend_slice, *one, use_reentrant=False, preserve_rng_state=False)
            for one in slices
        ]
    else:
        outs = [attend_slice(*one) for one in slices]
    return torch.stack(outs).view(*heads, *outs[0].shape)


def _slices(tensor: Tensor, heads: Sequence[int]) -> list[Tensor]:
    """Views of each (image, head) of a tensor that broadcasts to ``(B, h, ., .)``."""
    images = tensor.expand(*heads, *tensor.shape[2:]).unbind(0)
    return [matrix for image in images for matrix in image.unbind(0)]
