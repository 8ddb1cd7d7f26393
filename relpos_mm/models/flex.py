"""Attention by FlexAttention: position bias and mask by index arithmetic inside the kernel."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from relpos_mm.encodings.base import PositionEncoding
from relpos_mm.encodings.grid import Grid
from relpos_mm.encodings.precision import widen

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def split_tables(
    encodings: Sequence[PositionEncoding], grid: Grid, device: torch.device
) -> tuple[Tensor | None, list[PositionEncoding]]:
    """Sum of the tables of offsets ``(1|h, 2 H - 1, 2 W - 1)``, and the encodings without one."""
    table, rest = None, []
    for encoding in encodings:
        found = encoding.offset_table(grid, device)
        if found is None:
            rest.append(encoding)
        else:
            table = widen(found) if table is None else table + found
    return table, rest


def require_flex(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    refused: Sequence[PositionEncoding],
    table: Tensor | None,
    dropout: float,
) -> None:
    """Refuse calls that FlexAttention cannot carry.

    Raises:
        ValueError: Encodings whose logits are no table of offsets, dropout, or gradients on a CPU.
    """
    if refused:
        names = ", ".join(encoding.name for encoding in refused)
        raise ValueError(
            f"attend: impl='flex' cannot carry {names}: it reads logits from a table of offsets, "
            "takes factored ones as channels, and has no attention matrix; use 'auto'"
        )
    if dropout:
        raise ValueError("attend: impl='flex' has no dropout of attention; use 'auto' or 0")
    wanted = any(t.requires_grad for t in (q, k, v, table) if t is not None)
    if q.device.type == "cpu" and wanted and torch.is_grad_enabled():
        raise ValueError(
            "attend: impl='flex' has no backward pass on a CPU; use 'auto', or torch.no_grad()"
        )


def flex(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor | None,
    mask: Tensor | None,
    grid: Grid,
    scale: float,
) -> Tensor:
    """Attend without a bias or an attention matrix in memory; see :func:`split_tables`.

    Args:
        q: ``(B, h, Nq, d)``, rotated, with factored terms as channels.
        k: ``(B, h, Nk, d)``.
        v: ``(B, h, Nk, d)``.
        table: ``(1|h, 2 H - 1, 2 W - 1)``, float32 or better.
        mask: ``(1|W|B, 1|h, 1|Nq, 1|Nk)``, bool (True = may attend) or additive.
        grid: Where the tokens stand.
        scale: Factor of the content logits.

    Returns:
        ``(B, h, Nq, d)``.
    """
    mods = []
    if table is not None:
        mods.append(_from_table(table, grid))
    if mask is not None:
        mods.append(_from_mask(mask))

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        for mod in mods:
            score = mod(score, b, h, i, j)
        return score

    # A model that is compiled as a whole takes the kernel into its own graph.
    whole = torch.compiler.is_compiling()
    kernel: Any = flex_attention if whole else _kernel(q.device.type)
    return kernel(q, k, v, score_mod=score_mod if mods else None, scale=scale)


def _from_table(table: Tensor, grid: Grid) -> ScoreMod:
    (height, width), prefix, heads = grid.q, grid.prefix, len(table)

    def add(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        query, key = (i - prefix).clamp(min=0), (j - prefix).clamp(min=0)
        row = query // width - key // width + height - 1
        column = query % width - key % width + width - 1
        bias = table[h % heads, row, column]
        if prefix:
            bias = torch.where((i >= prefix) & (j >= prefix), bias, 0.0)
        return score + bias

    return add


def _from_mask(mask: Tensor) -> ScoreMod:
    images, heads, rows, columns = mask.shape
    is_bool = mask.dtype == torch.bool

    def hide(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        # Axes of length 1 broadcast; the masks of W windows repeat over an image-major batch.
        seen = mask[b % images, h % heads, i % rows, j % columns]
        # Finite, so that a row without any visible key does not become NaN.
        lowest = torch.finfo(torch.float32).min
        return torch.where(seen, score, lowest) if is_bool else (score + seen).clamp(min=lowest)

    return hide


@cache
def _kernel(device: str) -> Callable[..., Any]:
    """The compiled kernel; on a CPU, where it would take minutes, the plain form of it."""
    if device != "cpu":
        return torch.compile(flex_attention)
    # It warns that it stores the matrix; on a CPU it serves for comparison alone.
    warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
    return flex_attention
