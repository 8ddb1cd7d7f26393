"""Attention that carries every position encoding through its hooks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from relpos_mm.encodings.base import PositionEncoding
from relpos_mm.encodings.grid import Grid
from relpos_mm.encodings.lookup import Lookup

from .eager import attention_matrix
from .flex import flex, require_flex, split_tables
from .forms import Impl, check_impl, current_impl
from .fused import fused_attention, fused_is_better, with_factors
from .sliced import sliced_attention, worth_slicing


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encodings: Sequence[PositionEncoding],
    grid: Grid,
    *,
    scale: float | None = None,
    mask: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    dropout: float = 0.0,
    impl: Impl | None = None,
    value_hooks: bool = True,
) -> Tensor:
    """Softmax attention with position encodings on one global grid.

    Args:
        q: ``(B, h, Nq, d)``; prefix tokens first, then the grid row by row.
        k: ``(B, h, Nk, d)``.
        v: ``(B, h, Nk, d)``.
        encodings: Encodings whose ``rotate``, ``bias``, ``value`` and ``value_attn`` apply.
        grid: Where the tokens stand.
        scale: Factor of the content logits; ``d ** -0.5`` by default.
        mask: bool (True = may attend) or additive float, broadcastable to ``(B, h, Nq, Nk)``, or
            4-D with a first dimension that divides B: one mask per window of an image-major batch.
        key_padding_mask: ``(B, Nk)`` bool, True = hidden, as in ``nn.MultiheadAttention``.
        dropout: Share of the attention to drop, here and for value terms that read it. It is
            applied as given, so hosts pass 0 outside training.
        impl: ``eager`` builds the attention matrix, ``fused`` uses
            ``scaled_dot_product_attention``, ``flex`` uses ``flex_attention``, which reads tables
            of offsets inside its kernel. ``auto`` takes the fused form on CUDA where every
            encoding allows it and on a CPU for float32 inference (with a trainable bias the CPU
            kernel falls back and is slower), and on large grids on a CPU works in blocks where
            encodings give ``lookups`` or factors and nothing is dropped. None is what
            :class:`~relpos_mm.models.forms.use_impl` has set, ``auto`` at first.
        value_hooks: False leaves :func:`value_terms` to a host that cuts maps into windows.

    Returns:
        ``(B, h, Nq, d)`` in the dtype of ``v``.

    Raises:
        ValueError: Token counts do not fit the grid or the masks, ``mask`` is of whole numbers,
            ``impl`` is unknown, or ``fused`` or ``flex`` is asked for an encoding that it cannot
            carry.

    A query whose keys are all hidden attends to all of them equally instead of becoming NaN; its
    output carries no information, so keep it out of the loss.
    """
    impl = current_impl() if impl is None else impl
    _check(q, k, v, grid, key_padding_mask, impl)
    if mask is not None:
        _check_mask(mask)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    mask = _combined_mask(mask, key_padding_mask, q.shape[0])
    out = _weighted_values(q, k, v, encodings, grid, scale, mask, dropout, impl)
    for term in value_terms(v[:, :, grid.prefix :], encodings, grid) if value_hooks else ():
        out = out + F.pad(term, (0, 0, grid.prefix, 0))
    return out


def value_terms(v: Tensor, encodings: Sequence[PositionEncoding], grid: Grid) -> list[Tensor]:
    """Outputs ``(B, h, N, d)`` of the ``value`` hooks on an unpartitioned map without prefix."""
    terms = (encoding.value(v, grid) for encoding in encodings)
    return [term for term in terms if term is not None]


def _check(
    q: Tensor, k: Tensor, v: Tensor, grid: Grid, key_padding_mask: Tensor | None, impl: str
) -> None:
    check_impl(impl)
    if not isinstance(grid, Grid):
        raise ValueError(
            "attend: no grid was given; pass Grid((H, W)), the layout of the tokens is never "
            "guessed from their number"
        )
    if q.shape[2] != grid.num_queries or k.shape[2] != grid.num_keys:
        raise ValueError(
            f"attend: {q.shape[2]} queries and {k.shape[2]} keys do not fit the grid "
            f"q={grid.q} k={grid.k} prefix={grid.prefix}, which has {grid.num_queries} and "
            f"{grid.num_keys}"
        )
    if v.shape[2] != k.shape[2]:
        raise ValueError(f"attend: {v.shape[2]} values for {k.shape[2]} keys")
    if grid.valid is not None and len(grid.valid) not in (1, len(q)):
        raise ValueError(f"attend: Grid.valid has {len(grid.valid)} regions for {len(q)} images")
    if key_padding_mask is not None and key_padding_mask.shape != (len(k), k.shape[2]):
        raise ValueError(
            f"attend: key_padding_mask {tuple(key_padding_mask.shape)} must be (B, Nk) = "
            f"{(len(k), k.shape[2])}"
        )


def _check_mask(mask: Tensor) -> None:
    """Refuse 0/1 masks of whole numbers: added to logits, they would hide nothing."""
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise ValueError(
            f"attend: mask is {mask.dtype}; give bool (True = may attend) or an additive float"
        )
    if mask.ndim > 4:
        raise ValueError(f"attend: mask {tuple(mask.shape)} must go into (B, h, Nq, Nk)")


def _weighted_values(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encodings: Sequence[PositionEncoding],
    grid: Grid,
    scale: float,
    mask: Tensor | None,
    dropout: float,
    impl: Impl,
) -> Tensor:
    """Attention by the form that suits the call, without ``value`` hooks."""
    needs_attn = [encoding for encoding in encodings if encoding.needs_attn]
    if impl == "fused" and needs_attn:
        raise ValueError(f"attend: {needs_attn[0].name} needs the attention matrix: use 'eager'")
    if impl == "flex":
        return _flex(q, k, v, encodings, grid, scale, mask, dropout)
    automatic = impl == "auto"
    if automatic:
        impl = "fused" if fused_is_better(q) and not needs_attn else "eager"

    factors, lookups, bias = _position_logits(q, k, encodings, grid, scale)
    found = [encoding.value_lookups(grid) for encoding in needs_attn]
    values = [lookup for one in found for lookup in one]
    sliced = automatic and all(found) and not dropout and bool(factors or lookups or values)
    sliced = sliced and worth_slicing(q, k, bias)
    if not sliced:
        for lookup in lookups:
            bias = lookup.dense() if bias is None else bias + lookup.dense()
    wide = q.dtype if impl == "fused" else torch.promote_types(q.dtype, torch.float32)
    bias = _masked(bias, mask, wide)
    q, k = _rotated(q, k, encodings, grid)
    if impl == "fused":
        return fused_attention(*with_factors(q, k, factors, scale), v, bias, scale, dropout)
    bias = None if bias is None else _per_entry(bias, q.shape[0])
    if sliced:
        q, k = with_factors(q, k, factors, scale)
        return sliced_attention(q, k, v, bias, lookups, values, scale)

    attn = attention_matrix(q, k, factors, bias, scale).to(v.dtype)
    attn = F.dropout(attn, dropout) if dropout else attn
    out = attn @ v
    for encoding in needs_attn:
        term = encoding.value_attn(attn, v, grid)
        out = out if term is None else out + term
    return out.to(v.dtype)


def _flex(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encodings: Sequence[PositionEncoding],
    grid: Grid,
    scale: float,
    mask: Tensor | None,
    dropout: float,
) -> Tensor:
    table, rest = split_tables(encodings, grid, q.device)
    factors, refused = [], []
    for encoding in rest:
        found, lookups, dense = _position_logits(q, k, [encoding], grid, scale)
        factors += found
        if encoding.needs_attn or lookups or dense is not None:
            refused.append(encoding)
    q, k = with_factors(*_rotated(q, k, encodings, grid), factors, scale)
    require_flex(q, k, v, refused, table, dropout)
    return flex(q, k, v, table, mask, grid, scale)


def _position_logits(
    q: Tensor, k: Tensor, encodings: Sequence[PositionEncoding], grid: Grid, scale: float
) -> tuple[list[tuple[Tensor, Tensor]], list[Lookup], Tensor | None]:
    """Factored terms, unexpanded ones and the sum of the dense ones, zero for prefix tokens."""
    factors: list[tuple[Tensor, Tensor]] = []
    lookups: list[Lookup] = []
    dense: Tensor | None = None
    for encoding in encodings:
        prefix = 0 if encoding.sees_prefix else grid.prefix
        tokens = q[:, :, prefix:], k[:, :, prefix:]
        unexpanded = [] if prefix else encoding.lookups(*tokens, grid, scale)
        lookups += unexpanded
        term = None if unexpanded else encoding.bias(*tokens, grid, scale)
        if isinstance(term, tuple):
            a, b = (F.pad(factor, (0, 0, prefix, 0)) for factor in term)
            factors.append((a, b))
        elif term is not None:
            term = _four_axes(term)
            term = F.pad(term, (prefix, 0, prefix, 0)) if prefix else term
            # Gathered from a table, heads lie innermost, and what is added for all windows would
            # take over that layout, in which every pass is slower and the softmax makes a copy.
            term = term.contiguous()
            dense = term if dense is None else dense + term
    return factors, lookups, dense


def _rotated(
    q: Tensor, k: Tensor, encodings: Sequence[PositionEncoding], grid: Grid
) -> tuple[Tensor, Tensor]:
    """Chain the ``rotate`` hooks; prefix tokens pass by."""
    prefix_q, q = q[:, :, : grid.prefix], q[:, :, grid.prefix :]
    prefix_k, k = k[:, :, : grid.prefix], k[:, :, grid.prefix :]
    for encoding in encodings:
        q, k = encoding.rotate(q, k, grid)
    if grid.prefix:
        q, k = torch.cat((prefix_q, q), dim=2), torch.cat((prefix_k, k), dim=2)
    return q, k


def _combined_mask(
    mask: Tensor | None, key_padding_mask: Tensor | None, batch: int
) -> Tensor | None:
    """One mask ``(1|W|B, 1|h, 1|Nq, 1|Nk)``: bool with True = may attend, or additive."""
    if mask is not None:
        mask = _four_axes(mask)
        if batch % mask.shape[0]:
            raise ValueError(f"attend: {mask.shape[0]} masks for a batch of {batch}")
    if key_padding_mask is None:
        return mask
    visible = ~key_padding_mask.bool()[:, None, None, :]
    if mask is None:
        return visible
    mask = _per_entry(mask, batch)
    if mask.dtype == torch.bool:
        return mask & visible
    return mask.masked_fill(~visible, torch.finfo(mask.dtype).min)


def _masked(bias: Tensor | None, mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Additive logits of bias and mask together, for logits of ``dtype``.

    Hidden pairs get the smallest finite number, so their weight is exactly 0 in every dtype
    (the published -100 is not), and a row without any visible key stays finite.
    """
    if mask is None:
        return bias
    if bias is not None and bias.shape[0] != 1:
        mask = _per_entry(mask, bias.shape[0])
    lowest = torch.finfo(dtype).min
    if mask.dtype != torch.bool:
        total = mask if bias is None else bias + mask
        return total.to(torch.promote_types(total.dtype, dtype)).clamp(min=lowest)
    if bias is None:
        bias = torch.zeros((), dtype=dtype, device=mask.device)
    return torch.where(mask, bias.to(dtype), lowest)


def _four_axes(tensor: Tensor) -> Tensor:
    """A tensor that broadcasts to ``(B, h, Nq, Nk)`` with the axes that it leaves out."""
    return tensor[(None,) * (4 - tensor.ndim)]


def _per_entry(tensor: Tensor, batch: int) -> Tensor:
    """One bias or mask for all entries of the batch, or one for each: those of windows repeat."""
    if tensor.shape[0] in (1, batch):
        return tensor
    return tensor.repeat(batch // tensor.shape[0], 1, 1, 1)
