"""Attention by torch's fused kernels: scaled dot product attention with a trainable bias."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

# Rows of a bias must start at multiples of 8 numbers for the memory-efficient CUDA kernel. torch
# pads them by itself, but where the bias was expanded before, for every window of every image.
_ALIGNMENT = 8
# Kernels start one block per entry of the batch axis, and CUDA's grid ends here (torch 2.8 and
# later cut larger batches).
_MAX_BATCH = 2**16 - 1
# Tokens from which on attention on a CPU may work in blocks, see worth_slicing.
_MAX_TOKENS = 512


def fused_is_better(q: Tensor) -> bool:
    """Whether a fused kernel exists for the call, and saves more than it costs.

    On CUDA the eager form is bound by the memory traffic of the attention matrix, which fused
    kernels never store. float64 has none. On a CPU a bias with a gradient rules them out, products
    of oneDNN (any float32 precision but "highest") are faster by themselves, and large grids have
    their blocks.
    """
    if q.is_cuda:
        return q.dtype != torch.float64 and q.shape[0] <= _MAX_BATCH
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or q.dtype != torch.float32:
        return False
    plain = torch.get_float32_matmul_precision() == "highest"
    return plain and not torch.is_autocast_enabled("cpu") and q.shape[2] < _MAX_TOKENS


def with_factors(
    q: Tensor, k: Tensor, factors: Sequence[tuple[Tensor, Tensor]], scale: float
) -> tuple[Tensor, Tensor]:
    """q and k with factored terms as extra channels, so that no bias tensor is needed."""
    for a, b in factors:
        q = torch.cat((q, (a / scale).to(q.dtype).expand(*q.shape[:3], -1)), dim=-1)
        k = torch.cat((k, b.to(k.dtype).expand(*k.shape[:3], -1)), dim=-1)
    return q, k


def fused_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, dropout: float
) -> Tensor:
    """Scaled dot product attention.

    Args:
        q: ``(B, h, Nq, d)``.
        k: ``(B, h, Nk, d)``.
        v: ``(B, h, Nk, d)``.
        bias: ``(1|W|B, 1|h, 1|Nq, 1|Nk)`` with the mask in it. W windows that divide B are the
            windows of an image-major batch: they move from the batch axis to the head axis, where
            one bias serves all images.
        scale: Factor of the content logits.
        dropout: Share of the attention to drop.

    Returns:
        ``(B, h, Nq, d)``.
    """
    windows = 1 if bias is None else bias.shape[0]
    fold = windows not in (1, q.shape[0])
    if bias is not None:
        if fold:
            heads = q.shape[1]
            bias = bias.expand(-1, heads, -1, -1).flatten(0, 1)[None]
            q, k, v = (x.unflatten(0, (-1, windows)).flatten(1, 2) for x in (q, k, v))
        bias = bias.to(q.dtype)
        bias = aligned(bias) if rows_must_align(q) else bias.contiguous()
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout, scale=scale)
    return out.unflatten(1, (windows, heads)).flatten(0, 1) if fold else out


def rows_must_align(q: Tensor) -> bool:
    """Whether the kernel for the call asks for it: on a CPU it is a copy for nothing."""
    return q.is_cuda


def aligned(bias: Tensor) -> Tensor:
    """The same bias in memory whose rows start at multiples of 8: 49 keys take 56 places.

    Numbers of a row stand side by side, or no fused kernel is taken. Those that are gathered from
    a table stand a head count apart, and padding alone would keep that.
    """
    keys, bias = bias.shape[-1], bias.contiguous()
    return F.pad(bias, (0, -keys % _ALIGNMENT))[..., :keys] if keys % _ALIGNMENT else bias
