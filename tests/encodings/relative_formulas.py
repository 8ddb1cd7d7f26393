"""Formulas of relative encodings once more, one pair of tokens at a time."""

from __future__ import annotations

from functools import lru_cache
from math import atan2, ceil, cos, hypot, log, log2, pi, sin
from typing import Any

import torch
from torch import Tensor

from relpos_mm.encodings import (
    Alibi2d,
    DecomposedBias,
    DirectedDistance,
    Disentangled,
    DynamicBias,
    HuangRelative,
    LogCoordBias,
    RelativeBias,
    SasaRelative,
    ShawRelative,
    TransformerXLRelative,
)
from relpos_mm.encodings.offset_vectors import OffsetVectors

from .case import HEAD_DIM, HEADS

Place = tuple[int, int]
ROOT = HEAD_DIM**0.5


def table_entry(encoding: RelativeBias, head: int, query: Place, key: Place) -> Tensor:
    """Row of the offset in a list of all offsets, rows first, from the most negative on."""
    height, width = encoding.window_size
    offsets = [(y, x) for y in range(1 - height, height) for x in range(1 - width, width)]
    row = offsets.index((query[0] - key[0], query[1] - key[1]))
    return encoding.relative_position_bias_table[row, head]


def table_alone(encoding: Any, head: int, query: Place, key: Place, q: Any, k: Any) -> Tensor:
    return table_entry(encoding, head, query, key)


def dynamic(encoding: DynamicBias, head: int, query: Place, key: Place) -> Tensor:
    return _network(encoding, query[0] - key[0], query[1] - key[1])[head]


@lru_cache(maxsize=1000)
def _network(encoding: DynamicBias, dy: int, dx: int) -> list[Tensor]:
    """The network of one offset, norm and all, in plain sums."""
    x: list = [dy, dx]
    x = _linear(encoding.pos_proj, x)
    for i, (norm, _, linear) in enumerate((encoding.pos1, encoding.pos2, encoding.pos3)):
        mean = sum(x) / len(x)
        deviation = (sum((number - mean) ** 2 for number in x) / len(x) + 1e-5) ** 0.5
        scaled = [
            (n - mean) / deviation * w + b
            for n, w, b in zip(x, norm.weight, norm.bias, strict=True)
        ]
        out = _linear(linear, [number.clamp(min=0) for number in scaled])
        x = [a + b for a, b in zip(x, out, strict=True)] if encoding.residual and i < 2 else out
    return x


def _linear(linear: torch.nn.Linear, x: list) -> list[Tensor]:
    bias = linear.bias if linear.bias is not None else [0.0] * len(linear.weight)
    return [
        sum((w * number for w, number in zip(row, x, strict=True)), start=b)
        for row, b in zip(linear.weight, bias, strict=True)
    ]


def log_coord(encoding: LogCoordBias, head: int, query: Place, key: Place) -> Tensor:
    return _log_network(encoding, query[0] - key[0], query[1] - key[1])[head]


@lru_cache(maxsize=1000)
def _log_network(encoding: LogCoordBias, *offsets: int) -> Tensor:
    coords = []
    for offset, window in zip(offsets, encoding.pretrained_window_size, strict=True):
        relative = 8 * offset / max(window - 1, 1)
        coords.append((1 if offset > 0 else -1) * log2(abs(relative) + 1) / log2(8))
    hidden = torch.stack(_linear(encoding.cpb_mlp[0], coords)).clamp(min=0)
    return 16 / (1 + torch.exp(-(encoding.cpb_mlp[2].weight * hidden).sum(1)))


def cosine(encoding: LogCoordBias, head: int, query: Place, key: Place, q: Any, k: Any) -> Tensor:
    tau = encoding.logit_scale[head, 0, 0].exp().clamp(max=100)
    return tau * (q @ k) / (q @ q * (k @ k)) ** 0.5 + log_coord(encoding, head, query, key)


def decomposed(
    encoding: DecomposedBias, head: int, query: Place, key: Place, q: Any, k: Any
) -> Tensor:
    """On the grid of the tables, or anywhere with ``centre``."""
    rows, columns = encoding.rel_pos_h, encoding.rel_pos_w
    return (
        q @ k / ROOT
        + q @ _middle(rows, query[0] - key[0])
        + q @ _middle(columns, query[1] - key[1])
    )


def _middle(table: Tensor, offset: int) -> Tensor:
    """Row of an offset counted from the middle, the edge repeated."""
    return table[min(max(offset + len(table) // 2, 0), len(table) - 1)]


def _vector(vectors: OffsetVectors, head: int, query: Place, key: Place) -> Tensor:
    (up, down), (left, right) = vectors.reach
    y = min(max(query[0] - key[0], -up), down) + up
    x = min(max(query[1] - key[1], -left), right) + left

    def row(table: Tensor, i: int) -> Tensor:
        return table[i] if table.ndim == 2 else table[head, i]

    if vectors.mapping == "product":
        return row(vectors.table, y * (left + right + 1) + x)
    return row(vectors.rows, y) + row(vectors.columns, x)


def shaw(encoding: ShawRelative, head: int, query: Place, key: Place, q: Any, k: Any) -> Tensor:
    return q @ (k + _vector(encoding.key_vectors, head, query, key)) / ROOT


def shaw_value(encoding: ShawRelative, head: int, query: Place, key: Place) -> Tensor:
    return _vector(encoding.value_vectors, head, query, key)


def huang(encoding: HuangRelative, head: int, query: Place, key: Place, q: Any, k: Any) -> Tensor:
    a = _vector(encoding.vectors, head, query, key)
    return (q @ k + q @ a + k @ a) / ROOT


def transformer_xl(
    encoding: TransformerXLRelative, head: int, query: Place, key: Place, q: Any, k: Any
) -> Tensor:
    half = encoding.r_net.in_features // 2
    waves = []
    for axis in (0, 1):
        offset = query[axis] - key[axis]
        angles = [offset / encoding.temperature ** (2 * t / half) for t in range(half // 2)]
        waves += [sin(angle) for angle in angles] + [cos(angle) for angle in angles]
    vector = (encoding.r_net.weight @ torch.tensor(waves, dtype=q.dtype)).view(HEADS, -1)[head]
    return ((q + encoding.r_w_bias[head]) @ k + (q + encoding.r_r_bias[head]) @ vector) / ROOT


def sasa(encoding: SasaRelative, head: int, query: Place, key: Place, q: Any, k: Any) -> Tensor:
    """The key of all heads side by side, then this head's part of it."""
    row = _middle(encoding.rel_h, query[0] - key[0])
    column = _middle(encoding.rel_w, query[1] - key[1])
    if encoding.split == "channels":
        whole = torch.cat((row, column))
    elif encoding.shared_heads:
        whole = torch.cat((row, column)).repeat(HEADS)
    else:
        whole = torch.stack((row.view(HEADS, -1), column.view(HEADS, -1)), dim=1).flatten()
    return q @ (k + whole.view(HEADS, -1)[head]) / ROOT


def log_bucket(offset: int, size: int, longest: int) -> int:
    middle = size // 2
    if abs(offset) <= middle:
        return offset
    far = ceil(log(abs(offset) / middle) / log((longest - 1) / middle) * (middle - 1) - 1e-9)
    return (middle + far) * (1 if offset > 0 else -1)


def disentangled(
    encoding: Disentangled, head: int, query: Place, key: Place, q: Any, k: Any
) -> Tensor:
    terms, size = 1 + encoding.c2p + encoding.p2c, encoding.bucket_size

    def vector(name: str, sign: int) -> Tensor:
        rows = []
        for axis in (0, 1):
            offset = sign * (query[axis] - key[axis])
            row = log_bucket(offset, size, encoding.max_distance) + size
            rows.append(min(max(row, 0), 2 * size - 1))
        if encoding.mapping == "cross":
            pair = encoding.rel_embeddings_h[rows[0]] + encoding.rel_embeddings_w[rows[1]]
        else:
            pair = encoding.rel_embeddings[rows[0] * 2 * size + rows[1]]
        projection = getattr(encoding, name)
        return projection(encoding.norm(pair)).view(HEADS, -1)[head]

    total = q @ k
    if encoding.c2p:
        total = total + q @ vector("pos_key_proj", 1)
    if encoding.p2c:
        sign = 1 if encoding.p2c_offset == "code" else -1
        total = total + k @ vector("pos_query_proj", sign)
    return total / (HEAD_DIM * terms) ** 0.5


def alibi(encoding: Alibi2d, head: int, query: Place, key: Place) -> Tensor:
    distance = hypot(query[0] - key[0], query[1] - key[1])
    return torch.tensor(-encoding.slopes[head] * distance)


def look_here(encoding: DirectedDistance, head: int, query: Place, key: Place) -> Tensor:
    """Views as sectors of a circle, clockwise from straight up: centre and half width."""
    towards = (key[0] - query[0], key[1] - query[1])
    distance = hypot(*towards)
    if head < len(encoding.slopes) - encoding.undirected and distance:
        sectors = {
            "halves": ((0, 4), (8, 4), (12, 4), (4, 4)),
            "corners": ((14, 2), (2, 2), (10, 2), (6, 2)),
            "triangles": ((0, 2), (8, 2), (12, 2), (4, 2)),
            "eighths": ((15, 1), (9, 1), (13, 1), (3, 1), (1, 1), (7, 1), (11, 1), (5, 1)),
        }[encoding.directions]
        centre, half = sectors[head % len(sectors)]
        turn = atan2(towards[1], -towards[0]) / pi * 8 - centre  # sixteenths of a full turn
        if abs((turn + 8) % 16 - 8) > half + 1e-9:
            return torch.tensor(-torch.inf)
    return torch.tensor(-encoding.slopes[head] * distance)
