"""Cases of the sweep for iRPE, rotary, convolutional and absolute-win encodings."""

from __future__ import annotations

from math import cos, hypot, log, sin

import torch
from torch import Tensor

from relpos_mm.encodings import (
    AbsoluteWin,
    AxialRope,
    ContextualRpe,
    ConvPosition,
    Grid,
    LocalEnhanced,
    MixedRope,
)

from .case import CHANNELS, HEAD_DIM, HEADS, Case
from .cubic import cubic_vector

Place = tuple[int, int]
ROOT = HEAD_DIM**0.5
SIZES = {"embed_dims": CHANNELS, "num_heads": HEADS}


def index_of(x: float, ratio: float) -> int:
    """iRPE's piecewise index of one number, after the paper's equation 18."""
    if abs(x) <= ratio:
        return round(x)
    far = ratio + log(abs(x) / ratio) / log(8) * ratio
    return int(min(round(far), 2 * ratio)) * (1 if x > 0 else -1)


def bucket_of(encoding: ContextualRpe, query: Place, key: Place, table: str = "") -> int:
    """Row of one pair of places."""
    rule = encoding.rule
    dy, dx = query[0] - key[0], query[1] - key[1]
    g = clipped if rule.index == "clip" else index_of
    if rule.mapping == "product":
        return (
            (g(dy, rule.ratio) + rule.bound) * (2 * rule.bound + 1) + g(dx, rule.ratio) + rule.bound
        )
    if rule.mapping == "cross":
        return g(dy if "rows" in table else dx, rule.ratio) + rule.bound
    distance = hypot(dy, dx) if rule.mapping == "euclidean" else dy * dy + dx * dx
    if rule.mapping == "euclidean" and rule.semantics == "code":
        distance = round(distance)
    return g(distance, rule.ratio) + rule.bound


def clipped(x: float, ratio: float) -> int:
    return max(-int(2 * ratio), min(int(2 * ratio), round(x)))


def rpe_logit(
    encoding: ContextualRpe, head: int, query: Place, key: Place, q: Tensor, k: Tensor
) -> Tensor:
    """Content and every table on q or k, one pair."""
    total = q @ k / ROOT
    for name, table in encoding.named_parameters():
        side = name[4]
        if side == "v":
            continue
        pair = (key, query) if side == "q" and encoding.rule.semantics == "code" else (query, key)
        row = table[head % len(table)][..., bucket_of(encoding, *pair, name)]
        total = total + (row if encoding.mode == "bias" else (k if side == "q" else q) @ row / ROOT)
    return total


def rpe_value(encoding: ContextualRpe, head: int, query: Place, key: Place) -> Tensor:
    tables = [(n, t) for n, t in encoding.named_parameters() if n.startswith("rpe_v")]
    return sum(t[head % len(t)][bucket_of(encoding, query, key, n)] for n, t in tables)


def turned(x: Tensor, angles: list[float], pairing: str) -> Tensor:
    """Each pair of channels as a complex number times exp(i angle)."""
    out = x.clone()
    for t, angle in enumerate(angles):
        a, b = (2 * t, 2 * t + 1) if pairing == "neighbour" else (t, t + len(angles))
        out[a] = x[a] * cos(angle) - x[b] * sin(angle)
        out[b] = x[a] * sin(angle) + x[b] * cos(angle)
    return out


def axial_logit(
    encoding: AxialRope, head: int, query: Place, key: Place, q: Tensor, k: Tensor
) -> Tensor:
    def angles(place: Place) -> list[float]:
        first, second = place[::-1] if encoding.axis_order == "xy" else place
        bands = [encoding.theta ** (-4 * t / HEAD_DIM) for t in range(HEAD_DIM // 4)]
        return [first * band for band in bands] + [second * band for band in bands]

    pairing = encoding.pairing
    return turned(q, angles(query), pairing) @ turned(k, angles(key), pairing) / ROOT


def mixed_logit(
    encoding: MixedRope, head: int, query: Place, key: Place, q: Tensor, k: Tensor
) -> Tensor:
    def angles(place: Place) -> list[float]:
        first, second = place[::-1] if encoding.axis_order == "xy" else place
        return [
            float(
                first * encoding.rope_freqs[0, head, t] + second * encoding.rope_freqs[1, head, t]
            )
            for t in range(HEAD_DIM // 2)
        ]

    pairing = encoding.pairing
    return turned(q, angles(query), pairing) @ turned(k, angles(key), pairing) / ROOT


def convolved(
    conv: torch.nn.Conv2d, x: Tensor, row: int, column: int, grid: Grid, window: Place | None = None
) -> Tensor:
    """One place of a depth-wise convolution of ``(H, W, C)``, zero outside content and window."""
    height, width = grid.q if grid.valid is None else grid.valid[0]
    out = conv.bias.detach().clone()
    radius = conv.kernel_size[0] // 2
    for dy in range(-radius, radius + 1):
        for dx in range(-radius, radius + 1):
            y, x_ = row + dy, column + dx
            if not (0 <= y < height and 0 <= x_ < width):
                continue
            if window and (y // window[0], x_ // window[1]) != (
                row // window[0],
                column // window[1],
            ):
                continue
            out += conv.weight[:, 0, dy + radius, dx + radius].detach() * x[y, x_]
    return out


def peg_vector(encoding: ConvPosition, x: Tensor, row: int, column: int, grid: Grid) -> Tensor:
    return convolved(encoding.proj, x, row, column, grid)


def lepe_vector(encoding: LocalEnhanced, v: Tensor, row: int, column: int, grid: Grid) -> Tensor:
    window = encoding.window_size if encoding.local else None
    return convolved(encoding.get_v, v, row, column, grid, window)


def absolute_win_vector(encoding: AbsoluteWin, row: int, column: int, grid: Grid) -> Tensor:
    height, width = encoding.window_size
    out = encoding.pos_embed_window[0, :, row % height, column % width].detach().clone()
    size = grid.q if grid.valid is None else grid.valid[0]
    if row < size[0] and column < size[1]:
        out += cubic_vector(encoding.pos_embed[0].detach(), row, column, size)
    return out


ROTARY_AND_MAP_CASES = {
    "irpe on k": Case(ContextualRpe, {**SIZES, "ratio": 2.0}, logit=rpe_logit, covering=(11, 11)),
    "irpe on q, k and v, per head": Case(
        ContextualRpe,
        {**SIZES, "rpe_on": "qkv", "shared_head": False, "ratio": 1.0},
        logit=rpe_logit,
        added_value=rpe_value,
    ),
    "irpe cross": Case(
        ContextualRpe,
        {**SIZES, "rpe_on": "qkv", "mapping": "cross"},
        logit=rpe_logit,
        added_value=rpe_value,
    ),
    "irpe euclidean bias": Case(
        ContextualRpe,
        {**SIZES, "rpe_on": "qk", "mapping": "euc", "mode": "bias", "shared_head": False},
        logit=rpe_logit,
        relu=True,
    ),
    "irpe quantization": Case(
        ContextualRpe, {**SIZES, "mapping": "quant"}, logit=rpe_logit, relu=True
    ),
    "irpe of the paper, clipped": Case(
        ContextualRpe,
        {**SIZES, "rpe_on": "qk", "mapping": "euc", "semantics": "paper", "index": "clip"},
        logit=rpe_logit,
        relu=True,
    ),
    "axial rotary": Case(AxialRope, SIZES, logit=axial_logit),
    "axial rotary, rows first, halves": Case(
        AxialRope, {**SIZES, "axis_order": "yx", "pairing": "half"}, logit=axial_logit
    ),
    "mixed rotary": Case(MixedRope, SIZES, logit=mixed_logit),
    "mixed rotary, rows first, halves": Case(
        MixedRope, {**SIZES, "axis_order": "yx", "pairing": "half"}, logit=mixed_logit
    ),
    "absolute-win": Case(
        AbsoluteWin,
        {"embed_dims": CHANNELS, "window_size": (3, 4), "global_size": (4, 6)},
        embed=absolute_win_vector,
        other_size={"window_size": (2, 5), "global_size": (3, 3)},
    ),
    "convolution": Case(ConvPosition, {"embed_dims": CHANNELS}, embed_content=peg_vector),
    "values' convolution": Case(LocalEnhanced, {"embed_dims": CHANNELS}, value=lepe_vector),
    "values' convolution in windows": Case(
        LocalEnhanced,
        {"embed_dims": CHANNELS, "local": True, "window_size": (3, 4)},
        value=lepe_vector,
    ),
}
