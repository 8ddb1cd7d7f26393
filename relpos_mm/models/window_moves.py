"""Move tokens into windows split by head, and back: each way one copy of rows of d numbers.

The two ways are each other's transpose, so each is also the other's backward pass: no gradient is
ever scattered. Legend: ``T`` tokens of an image, ``H * W`` and, where slots are padding, one more
that fills them; ``parts`` are tensors side by side in a token's channels, such as q, k and v.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from relpos_mm.encodings.made_once import made_once

from .windows import Cut, WindowPlan, window_plan


def to_windows(tokens: Tensor, plan: WindowPlan, parts: int, heads: int) -> Tensor:
    """``(B, T, parts * h * d) -> (parts, B * windows, h, N, d)``; the last token fills padding."""
    if torch.compiler.is_dynamo_compiling():
        return _gathered(tokens, plan, parts, heads)
    if _plain(tokens):
        return _to_windows(tokens, plan, parts, heads)
    return _ToWindows.apply(tokens, plan, parts, heads)


def from_windows(windows: Tensor, plan: WindowPlan) -> Tensor:
    """``(B * windows, h, N, d) -> (B, H * W, h * d)``; what stands in padding is dropped."""
    if torch.compiler.is_dynamo_compiling():
        return _returned(windows, plan)
    if _plain(windows):
        return _from_windows(windows, plan)
    return _FromWindows.apply(windows, plan)


def _plain(x: Tensor) -> bool:
    """Whether no backward pass of our own is needed; a trace or a compiler could not hold it."""
    traced = torch.jit.is_tracing() or torch.compiler.is_compiling()
    return traced or not (torch.is_grad_enabled() and x.requires_grad)


def _to_windows(tokens: Tensor, plan: WindowPlan, parts: int, heads: int) -> Tensor:
    batch, _, channels = tokens.shape
    width = channels // (parts * heads)
    rows = slot_rows(plan.cut, batch, parts, heads, tokens.device)
    moved = tokens.reshape(-1, width).index_select(0, rows)
    return moved.view(parts, batch * plan.num_windows, heads, -1, width)


def _from_windows(windows: Tensor, plan: WindowPlan) -> Tensor:
    count, heads, _, width = windows.shape
    batch = count // plan.num_windows
    rows = token_rows(plan.cut, batch, 1, heads, windows.device)
    moved = windows.reshape(-1, width).index_select(0, rows)
    return moved.view(batch, -1, heads * width)[:, : len(plan.slots)]


def _gathered(tokens: Tensor, plan: WindowPlan, parts: int, heads: int) -> Tensor:
    """:func:`to_windows` for a compiler, which knows sizes by the plan's tensors alone."""
    slots = tokens.index_select(1, plan.index.flatten())
    slots = slots.view(-1, plan.index.shape[1], parts, heads, slots.shape[-1] // (parts * heads))
    return slots.permute(2, 0, 3, 1, 4)


def _returned(windows: Tensor, plan: WindowPlan) -> Tensor:
    """:func:`from_windows` for a compiler."""
    slots = windows.transpose(1, 2).flatten(2)  # (B * windows, N, h * d)
    slots = slots.view(-1, plan.index.numel(), slots.shape[-1])
    return slots.index_select(1, plan.slots)


@made_once(maxsize=64)
def slot_rows(cut: Cut, batch: int, parts: int, heads: int, device: torch.device) -> Tensor:
    """Row of ``(B, T, parts, h)`` that stands in every ``(parts, B, windows, h, N)``.

    Returns:
        Flat int32 (half of the memory of int64, at the same speed).
    """
    plan = window_plan(*cut, False, device)
    part, image, head = (torch.arange(length, device=device) for length in (parts, batch, heads))
    rows = plan.index[:, None] * (parts * heads) + head.view(-1, 1)
    first = part.view(-1, 1) * heads + image * ((len(plan.slots) + plan.padded) * parts * heads)
    return (first.view(parts, batch, 1, 1, 1) + rows).flatten().int()


@made_once(maxsize=64)
def token_rows(cut: Cut, batch: int, parts: int, heads: int, device: torch.device) -> Tensor:
    """Row of ``(parts, B, windows, h, N)`` where every ``(B, H * W, parts, h)`` stands, flat int32.

    Every image is followed by one more token at the place of its first one where slots are padding:
    room for the token that fills them.
    """
    plan = window_plan(*cut, False, device)
    slots = F.pad(plan.slots, (0, int(plan.padded)))
    return rows_of_slots(slots, plan, batch, parts, heads).int()


def rows_of_slots(slots: Tensor, plan: WindowPlan, batch: int, parts: int, heads: int) -> Tensor:
    """Row of ``(parts, B, windows, h, N)`` for every ``(B, len(slots), parts, h)``, flat."""
    part, image, head = (
        torch.arange(length, device=slots.device) for length in (parts, batch, heads)
    )
    width = plan.index.shape[1]
    rows = (slots // width * (heads * width) + slots % width).view(-1, 1, 1) + head * width
    first = (part * batch + image.view(-1, 1)) * (plan.num_windows * heads * width)
    return (first.view(batch, 1, parts, 1) + rows).flatten()


class _ToWindows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, plan: WindowPlan, parts: int, heads: int) -> Tensor:
        ctx.plan = plan
        return _to_windows(tokens, plan, parts, heads)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        plan = ctx.plan
        parts, windows, heads, _, width = grad.shape
        batch = windows // plan.num_windows
        source = grad.reshape(-1, width)
        rows = token_rows(plan.cut, batch, parts, heads, grad.device)
        moved = source.index_select(0, rows).view(batch, -1, parts * heads * width)
        if plan.padded:
            rows = rows_of_slots(plan.padding, plan, batch, parts, heads)
            filled = source.index_select(0, rows).view(batch, -1, parts * heads * width)
            moved[:, -1] = filled.sum(dim=1)
        return moved, None, None, None


class _FromWindows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, windows: Tensor, plan: WindowPlan) -> Tensor:
        ctx.plan, ctx.heads = plan, windows.shape[1]
        return _from_windows(windows, plan)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        plan = ctx.plan
        grad = F.pad(grad, (0, 0, 0, int(plan.padded)))
        return to_windows(grad, plan, 1, ctx.heads)[0], None
