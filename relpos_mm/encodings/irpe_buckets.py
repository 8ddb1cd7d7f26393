"""iRPE's buckets: which table row the offset of two tokens reads (pure index arithmetic)."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Literal

import torch
from torch import Tensor

from .grid import Size
from .made_once import made_once

Mapping = Literal["euclidean", "quantization", "cross", "product"]
Index = Literal["piecewise", "clip"]
Semantics = Literal["code", "paper"]


@dataclass(frozen=True)
class BucketRule:
    """How an offset (query minus key, rows first) becomes a bucket.

    With ``alpha = ratio, beta = 2 ratio, gamma = 8 ratio`` and ``B = int(beta)`` one number x has
    the index ``g(x) = x`` up to alpha and ``sign(x) min(beta, round(alpha + ln(|x| / alpha) /
    ln(gamma / alpha) (beta - alpha)))`` beyond (iRPE, equation 18), or ``clamp(x, -B, B)`` when
    ``index`` is ``clip`` (the paper's comparison; it has no public code).

    | mapping | bucket | buckets |
    | --- | --- | --- |
    | product | ``(g(dy) + B)(2 B + 1) + g(dx) + B`` | ``(2 B + 1)^2`` |
    | cross | ``g(dy) + B`` in one table, ``g(dx) + B`` in another | ``2 B + 1`` each |
    | euclidean | ``g(distance) + B`` | ``2 B + 1``, the first B never occur |
    | quantization | ``g(squared distance) + B`` | ``2 B + 1``, the first B never occur |

    The paper differs from the code in two rows, ``semantics="paper"`` follows it: euclidean
    indexes the real distance (the code rounds it first), quantization the rank of the distance
    among those of the grid (the code indexes the squared distance as it is).
    """

    mapping: Mapping
    ratio: float
    index: Index = "piecewise"
    semantics: Semantics = "code"

    @property
    def bound(self) -> int:
        """Largest index B of one axis: ``2 ratio`` without its fraction, as the code has it."""
        return int(2 * self.ratio)

    @property
    def num_buckets(self) -> int:
        """Rows of one table, the class token's bucket not counted."""
        side = 2 * self.bound + 1
        return side * side if self.mapping == "product" else side

    def axis_index(self, offsets: Tensor) -> Tensor:
        """``g`` of whole or real numbers, int64."""
        if self.index == "clip":
            return offsets.round().clamp(-self.bound, self.bound).long()
        alpha, beta = self.ratio, 2 * self.ratio
        size = offsets.abs().float()
        far = alpha + torch.log(size.clamp(min=alpha) / alpha) / log(8) * (beta - alpha)
        # Beta need not be whole: the minimum is taken first and its fraction dropped after.
        far = far.round().clamp(max=beta).trunc()
        return torch.where(size <= alpha, size.round(), far).mul(offsets.sign()).long()

    def offset_buckets(self, size: Size) -> tuple[Tensor, ...]:
        """Bucket of every offset of a grid, ``(2 H - 1, 2 W - 1)`` int64, one array per table."""
        rows = torch.arange(1 - size[0], size[0], device="cpu")
        columns = torch.arange(1 - size[1], size[1], device="cpu")
        if self.mapping in ("product", "cross"):
            row_index = (self.axis_index(rows) + self.bound)[:, None]
            column_index = (self.axis_index(columns) + self.bound)[None, :]
            if self.mapping == "product":
                return (row_index * (2 * self.bound + 1) + column_index,)
            shape = (len(rows), len(columns))
            return row_index.expand(shape), column_index.expand(shape)
        squared = rows[:, None] ** 2 + columns[None, :] ** 2
        if self.mapping == "euclidean":
            distance = squared.float().sqrt()
            distance = distance.round() if self.semantics == "code" else distance
            return (self.axis_index(distance) + self.bound,)
        if self.semantics == "paper":
            squared = torch.unique(squared, return_inverse=True)[1]
        return (self.axis_index(squared) + self.bound,)


# A training alternates between a few grids; one of 84 x 84 tokens takes 50 MB in uint8.
@made_once(maxsize=8)
def bucket_ids(
    rule: BucketRule, size: Size, prefix: int = 0, device: torch.device | str = "cpu"
) -> tuple[Tensor, ...]:
    """Bucket of every pair of tokens, built once per grid for all layers.

    Args:
        rule: How offsets become buckets.
        size: Grid ``(H, W)``.
        prefix: Tokens before the grid; every pair with one of them is in one extra bucket, the
            last. 0 where such pairs have no bucket.
        device: Where the ids are wanted; part of the cache key like everything else.

    Returns:
        One ``(N, N)`` array (query, key) per table, N = prefix + H W, in the smallest of uint8,
        int16 and int32 that holds the ids.
    """
    tables = (_pairs(table, size, prefix, rule.num_buckets) for table in rule.offset_buckets(size))
    return tuple(table.to(device) for table in tables)


@made_once(maxsize=4)
def _wide_ids(
    rule: BucketRule, size: Size, prefix: int, device: torch.device
) -> tuple[Tensor, ...]:
    return tuple(ids.long() for ids in bucket_ids(rule, size, prefix, device))


def gather_ids(
    rule: BucketRule, size: Size, prefix: int, device: torch.device
) -> tuple[Tensor, ...]:
    """:func:`bucket_ids` as int64, the only type that gathers fast.

    Up to 1448 tokens (16 MB an array) all layers share one copy, beyond it is made per call.
    """
    tokens = prefix + size[0] * size[1]
    if tokens * tokens <= 2**21:
        return _wide_ids(rule, size, prefix, device)
    return tuple(ids.long() for ids in bucket_ids(rule, size, prefix, device))


def _pairs(of_offset: Tensor, size: Size, prefix: int, extra_bucket: int) -> Tensor:
    """Spread ``(2 H - 1, 2 W - 1)`` by offset over all pairs ``(N, N)``."""
    dtype = torch.uint8 if extra_bucket < 2**8 else torch.int32
    dtype = torch.int16 if 2**8 <= extra_bucket < 2**15 else dtype
    tokens = size[0] * size[1]
    # Sliding an H x W window over the flipped offsets reads, for one query, all its keys in order.
    slides = of_offset.to(dtype).flip(0, 1).unfold(0, size[0], 1).unfold(1, size[1], 1)
    pairs = slides.flip(0, 1).reshape(tokens, tokens)
    if prefix == 0:
        return pairs
    out = pairs.new_full((prefix + tokens, prefix + tokens), extra_bucket)
    out[prefix:, prefix:] = pairs
    return out
