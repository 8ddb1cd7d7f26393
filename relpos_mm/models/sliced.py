"""Attention in blocks of query rows that stay in the processor's cache.

Nothing of the size ``B h N^2`` is ever stored: position terms are expanded block by block, and the
backward pass computes a block again. On a CPU this saves the time that fresh memory costs, which on
25 x 38 tokens is most of the time of attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import torch
from torch import Tensor

from relpos_mm.encodings.lookup import Lookup, ValueLookup

# Pairs of one block, two megabytes in float32: smaller ones pay for more calls, larger ones leave
# the cache.
_BLOCK = 2**19


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
    order = None
    # Sums into buckets are part of values and of gradients only.
    if values or (torch.is_grad_enabled() and any(term.values.requires_grad for term in logits)):
        order = _scattered(k.shape[2], k.device)
        k, v = k.index_select(2, order), v.index_select(2, order)
        if bias is not None and bias.shape[-1] > 1:
            bias = bias.index_select(-1, order)
        logits = [_reordered(lookup, order) if lookup.by_key else lookup for lookup in logits]

    by_key = [lookup.by_key for lookup in logits]
    sources = [lookup.values for lookup in logits] + [value.table for value in values]
    indices = [lookup.index for lookup in logits] + [value.index for value in values]
    sources = [source.to(q.dtype) for source in sources]
    return _SlicedAttention.apply(scale, by_key, order, q, k, v, bias, *sources, *indices)


def _scattered(num_keys: int, device: torch.device) -> Tensor:
    """Order of keys in which neighbours on the grid are far apart, ``(Nk,)``.

    Neighbours mostly share a bucket, and a sum of many numbers that follow each other into one
    bucket waits for every addition: in this order, those sums take half the time.
    """
    step = max(1, round(num_keys * 0.618))
    while gcd(step, num_keys) > 1:
        step += 1
    return torch.arange(num_keys, device=device) * step % num_keys


def _reordered(lookup: Lookup, order: Tensor) -> Lookup:
    """A lookup by key with its rows, and those of its index, in another order of keys."""
    values, index = lookup.values.index_select(2, order), lookup.index.index_select(0, order)
    return replace(lookup, values=values, index=index)


@dataclass(frozen=True)
class _Call:
    """The inputs of one call, and what both directions compute of a block."""

    scale: float
    order: Tensor | None  # of the keys everywhere but in indices by query
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
        order: Tensor | None,
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
        return cls(scale, order, q, k, v, bias, logits, values)

    @property
    def rows(self) -> int:
        """Query rows of a block."""
        return max(1, min(_BLOCK // self.k.shape[2], self.q.shape[2]))

    def blocks(self) -> Iterator[tuple[tuple[int, int], slice, list[Tensor], list[Tensor]]]:
        """Every slice of query rows with every (image, head).

        These share what a block picks, ``(R, Nk)``, for each term of the logits and of the values.
        """
        for first in range(0, self.q.shape[2], self.rows):
            rows = slice(first, first + self.rows)
            of_logits = [self.picks(term, rows) for term in self.logits]
            of_values = [self.picks(term, rows) for term in self.values]
            for image in range(self.q.shape[0]):
                for head in range(self.q.shape[1]):
                    yield (image, head), rows, of_logits, of_values

    def picks(self, term: Lookup | ValueLookup, rows: slice) -> Tensor:
        """Bucket of each pair of a block; of a lookup by key the place among all its values.

        Such places lie side by side for one query, which makes both picking and sums into the rows
        of other keys faster.
        """
        if isinstance(term, Lookup) and term.by_key:
            num_keys, num_buckets = term.values.shape[-2:]
            firsts = torch.arange(num_keys, device=term.index.device)[:, None] * num_buckets
            return (firsts + term.index[:, rows]).t().contiguous()
        index = term.index[rows]
        # As index[:, order], and faster.
        return index if self.order is None else index.gather(1, self.order.expand(len(index), -1))

    def scratch(self) -> Tensor:
        """Memory for the pairs of a block, ``(R, Nk)``: the same for all blocks."""
        return self.q.new_empty(self.rows, self.k.shape[2])

    def attention(
        self, at: tuple[int, int], rows: slice, picks: list[Tensor], out: Tensor, spare: Tensor
    ) -> Tensor:
        """Attention of a block, ``(R, Nk)``, in the memory of `out`."""
        q, k = self.q[at][rows], self.k[at]
        out, spare = out[: len(q)], spare[: len(q)]
        terms = list(zip(self.logits, picks, strict=True))
        for lookup, pick in terms[:1]:
            self.expand(lookup, at, rows, pick, out)
        torch.addmm(out, q, k.t(), beta=1 if terms else 0, alpha=self.scale, out=out)
        for lookup, pick in terms[1:]:
            out += self.expand(lookup, at, rows, pick, spare)
        if self.bias is not None:
            shape = (*self.q.shape[:3], self.k.shape[2])
            out += self.bias.expand(shape)[at][rows]
        return torch.softmax(out, dim=-1, out=out)

    def expand(
        self, lookup: Lookup, at: tuple[int, int], rows: slice, pick: Tensor, out: Tensor
    ) -> Tensor:
        """Numbers that a block picks, ``(R, Nk)``, in the memory of `out`."""
        source = self.at(lookup.values, at)
        if lookup.by_key:
            torch.index_select(source.reshape(-1), 0, pick.view(-1), out=out.view(-1))
            return out
        return torch.gather(source[rows], -1, pick, out=out)

    def at(self, tensor: Tensor, at: tuple[int, int]) -> Tensor:
        """View of one (image, head) of a tensor that broadcasts to ``(B, h, ., .)``."""
        return tensor.expand(*self.q.shape[:2], *tensor.shape[-2:])[at]


class _SlicedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scale: float, by_key: list[bool], order: Tensor | None, *tensors: Tensor
    ) -> Tensor:
        call = _Call.unpack(scale, by_key, order, *tensors)
        out = call.v.new_empty(*call.q.shape[:3], call.v.shape[-1])
        masses = [out.new_zeros(*out.shape[:3], value.table.shape[-2]) for value in call.values]
        pairs, spare = call.scratch(), call.scratch()
        for at, rows, picks, sums in call.blocks():
            attn = call.attention(at, rows, picks, pairs, spare)
            torch.mm(attn, call.v[at], out=out[at][rows])
            for mass, pick in zip(masses, sums, strict=True):
                mass[at][rows].scatter_add_(-1, pick, attn)
        for value, mass in zip(call.values, masses, strict=True):
            out += mass @ value.table
        ctx.scale, ctx.by_key, ctx.order, ctx.num_masses = scale, by_key, order, len(masses)
        ctx.save_for_backward(*masses, *tensors)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():  # that is, under create_graph
            raise RuntimeError("attend: second derivatives on large grids need impl='eager'")
        masses, tensors = ctx.saved_tensors[: ctx.num_masses], ctx.saved_tensors[ctx.num_masses :]
        call = _Call.unpack(ctx.scale, ctx.by_key, ctx.order, *tensors)
        grad_q, grad_k, grad_v = (torch.zeros_like(tensor) for tensor in (call.q, call.k, call.v))
        grad_rows = [lookup.values.new_zeros(lookup.values.shape) for lookup in call.logits]
        grad_tables = [
            (mass.transpose(-2, -1) @ grad_out).sum_to_size(value.table.shape)
            for value, mass in zip(call.values, masses, strict=True)
        ]
        grad_masses = [
            Lookup(grad_out @ value.table.transpose(-2, -1), value.index) for value in call.values
        ]
        pairs, grad_pairs, spare = call.scratch(), call.scratch(), call.scratch()
        for at, rows, picks, sums in call.blocks():
            attn = call.attention(at, rows, picks, pairs, spare)
            q, grad = call.q[at][rows], grad_out[at][rows]
            grad_v[at].addmm_(attn.t(), grad)
            grad_attn = torch.mm(grad, call.v[at].t(), out=grad_pairs[: len(q)])
            for lookup, pick in zip(grad_masses, sums, strict=True):
                grad_attn += call.expand(lookup, at, rows, pick, spare[: len(q)])
            grad_logits = _softmax_backward(grad_attn, attn)
            grad_q[at][rows].addmm_(grad_logits, call.k[at], alpha=call.scale)
            grad_k[at].addmm_(grad_logits.t(), q, alpha=call.scale)
            for lookup, pick, grad_row in zip(call.logits, picks, grad_rows, strict=True):
                target = call.at(grad_row, at)
                if lookup.by_key:
                    target.view(-1).scatter_add_(0, pick.view(-1), grad_logits.view(-1))
                else:
                    target[rows].scatter_add_(-1, pick, grad_logits)
        indices = [None] * (len(grad_rows) + len(grad_tables))
        return None, None, None, grad_q, grad_k, grad_v, None, *grad_rows, *grad_tables, *indices


def _softmax_backward(grad: Tensor, attn: Tensor) -> Tensor:
    """Gradient of the logits, in the memory of `grad`, the one of the attention."""
    return torch.ops.aten._softmax_backward_data.out(grad, attn, -1, grad.dtype, grad_input=grad)
