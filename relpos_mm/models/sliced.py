"""Attention in blocks of query rows that stay in the processor's cache.

Nothing of the size ``B h N^2`` is ever stored: position terms are expanded block by block, and the
backward pass computes a block again. On a CPU this saves the time that fresh memory costs, which on
25 x 38 tokens is most of the time of attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from relpos_mm.encodings.contextual import bucket_mass
from relpos_mm.encodings.lookup import Lookup, ValueLookup

# Pairs of one block: half a megabyte in float32, about what a core has for itself.
_BLOCK = 2**17


def worth_slicing(q: Tensor, k: Tensor, bias: Tensor | None) -> bool:
    """Whether :func:`sliced_attention` can take the call and is faster than one matrix for all.

    Measured: below some 500 tokens there is nothing to gain. A bias with a gradient would need that
    gradient for all blocks at once.
    """
    return (
        q.shape[2] * k.shape[2] >= 2**18
        and q.device.type == "cpu"
        and q.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled("cpu")
        and not (bias is not None and bias.requires_grad)
    )


def sliced_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    logits: Sequence[Lookup],
    values: Sequence[ValueLookup],
    scale: float,
) -> Tensor:
    """Attend block by block; differentiable once.

    Args:
        q: ``(B, h, Nq, d)``, rotated.
        k: ``(B, h, Nk, d)``, rotated.
        v: ``(B, h, Nk, d)``.
        bias: Further logits and the mask, without a gradient.
        logits: Terms to add to the logits.
        values: Terms to add to the output.
        scale: Factor of the content logits.

    Returns:
        ``(B, h, Nq, d)``.
    """
    by_key = [lookup.by_key for lookup in logits]
    sources = [lookup.values for lookup in logits] + [value.table.to(v.dtype) for value in values]
    indices = [lookup.index for lookup in logits] + [value.index for value in values]
    return _SlicedAttention.apply(scale, by_key, q, k, v, bias, *sources, *indices)


@dataclass(frozen=True)
class _Call:
    """The inputs of one call, and what both directions compute of a block."""

    scale: float
    q: Tensor
    k: Tensor
    v: Tensor
    bias: Tensor | None
    logits: Sequence[Lookup]
    values: Sequence[ValueLookup]

    @classmethod
    def unpack(
        cls,
        scale: float,
        by_key: list[bool],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        *tensors: Tensor,
    ) -> _Call:
        half, split = len(tensors) // 2, len(by_key)
        pairs = list(zip(tensors[:half], tensors[half:], strict=True))
        logits = [Lookup(*pair, flag) for pair, flag in zip(pairs[:split], by_key, strict=True)]
        values = [ValueLookup(*pair) for pair in pairs[split:]]
        return cls(scale, q, k, v, bias, logits, values)

    def blocks(self) -> Iterator[tuple[tuple[int, int], slice]]:
        """Every (image, head) with every slice of query rows."""
        step = max(1, _BLOCK // self.k.shape[2])
        for image in range(self.q.shape[0]):
            for head in range(self.q.shape[1]):
                for first in range(0, self.q.shape[2], step):
                    yield (image, head), slice(first, first + step)

    def attention(self, at: tuple[int, int], rows: slice) -> tuple[Tensor, Tensor]:
        """Scaled queries ``(R, d)`` and their attention ``(R, Nk)``."""
        q = self.q[at][rows] * self.scale
        logits = q @ self.k[at].t()
        for lookup in self.logits:
            source = self.at(lookup.values, at)
            if lookup.by_key:
                logits += source.gather(-1, lookup.index[:, rows]).t()
            else:
                logits += source[rows].gather(-1, lookup.index[rows])
        if self.bias is not None:
            shape = (*self.q.shape[:3], self.k.shape[2])
            logits += self.bias.expand(shape)[at][rows]
        return q, logits.softmax(dim=-1)

    def at(self, tensor: Tensor, at: tuple[int, int]) -> Tensor:
        """View of one (image, head) of a tensor that broadcasts to ``(B, h, ., .)``."""
        return tensor.expand(*self.q.shape[:2], *tensor.shape[-2:])[at]


class _SlicedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scale: float, by_key: list[bool], *tensors: Tensor) -> Tensor:
        ctx.scale, ctx.by_key = scale, by_key
        ctx.save_for_backward(*tensors)
        call = _Call.unpack(scale, by_key, *tensors)
        out = call.v.new_empty(*call.q.shape[:3], call.v.shape[-1])
        for at, rows in call.blocks():
            attn = call.attention(at, rows)[1]
            block = attn @ call.v[at]
            for value in call.values:
                masses = _masses(value, attn, rows)
                block += masses @ call.at(value.table, at)
            out[at][rows] = block
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():  # that is, under create_graph
            raise RuntimeError("attend: second derivatives on large grids need impl='eager'")
        call = _Call.unpack(ctx.scale, ctx.by_key, *ctx.saved_tensors)
        grad_q, grad_k, grad_v = (torch.zeros_like(tensor) for tensor in (call.q, call.k, call.v))
        grad_rows = [torch.zeros_like(lookup.values) for lookup in call.logits]
        grad_tables = [torch.zeros_like(value.table) for value in call.values]
        for at, rows in call.blocks():
            q, attn = call.attention(at, rows)
            grad = grad_out[at][rows]
            grad_v[at].addmm_(attn.t(), grad)
            grad_logits = grad @ call.v[at].t()  # of the attention, until it passes the softmax
            for value, grad_table in zip(call.values, grad_tables, strict=True):
                call.at(grad_table, at).addmm_(_masses(value, attn, rows).t(), grad)
                grad_masses = grad @ call.at(value.table, at).t()
                grad_logits += grad_masses.gather(-1, value.index[rows])
            grad_logits -= (grad_logits * attn).sum(dim=-1, keepdim=True)
            grad_logits *= attn
            grad_q[at][rows] = grad_logits @ call.k[at] * call.scale
            grad_k[at].addmm_(grad_logits.t(), q)
            for lookup, grad_row in zip(call.logits, grad_rows, strict=True):
                target = call.at(grad_row, at)
                if lookup.by_key:
                    # Scattering from a transposed view takes six times as long.
                    target.scatter_add_(-1, lookup.index[:, rows], grad_logits.t().contiguous())
                else:
                    target[rows].scatter_add_(-1, lookup.index[rows], grad_logits)
        indices = [None] * (len(grad_rows) + len(grad_tables))
        return None, None, grad_q, grad_k, grad_v, None, *grad_rows, *grad_tables, *indices


def _masses(value: ValueLookup, attn: Tensor, rows: slice) -> Tensor:
    """Attention of a block per bucket, ``(R, K)``."""
    return bucket_mass(attn[None, None], value.index[rows], value.table.shape[-2])[0, 0]
