"""What an encoding says about places, as maps: offsets for relative ones, similarity for others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from relpos_mm.encodings import Grid, PositionEncoding
from relpos_mm.encodings.grid import Size
from relpos_mm.engine.errors import UserError

Kind = Literal["bias", "content", "rotary", "similarity", "values", "border"]
TITLES: dict[str, str] = {
    "bias": "added to the logits of the central query",
    "content": "root mean square of the added logit over unit queries",
    "rotary": "mean cosine between the central query's turn and each key's",
    "similarity": "cosine similarity with the place of the dot",
    "values": "length of the vector added to a value",
    "border": "answer to a constant map, mean over channels",
}


@dataclass(frozen=True)
class Pattern:
    """Maps of one encoding.

    Attributes:
        kind: What the numbers are, see :data:`TITLES`.
        maps: ``(M, H, W)``.
        labels: One per map.
        dots: The place ``(row, column)`` that each map is about, or None.
    """

    kind: Kind
    maps: Tensor
    labels: tuple[str, ...]
    dots: tuple[tuple[int, int] | None, ...]


@torch.no_grad()
def pattern(encoding: PositionEncoding, grid: Size, embed_dims: int, num_heads: int) -> Pattern:
    """Read an encoding's pattern off its hooks.

    A relative one is seen from the query in the middle of the grid, an absolute one from three
    places. Its first hook that does anything decides, in the order bias, rotate, value_attn, value,
    embed.

    Raises:
        UserError: No hook does anything on this grid.
    """
    width = embed_dims // num_heads
    place = Grid(grid)
    tokens = grid[0] * grid[1]
    centre = (grid[0] // 2, grid[1] // 2)
    middle = centre[0] * grid[1] + centre[1]
    # One image per unit vector: all its queries and keys are that vector.
    units = torch.eye(width)[:, None, None].expand(width, num_heads, tokens, width)

    term = encoding.bias(units, units, place, width**-0.5)
    if term is not None:
        logits = term[0] @ term[1].transpose(-2, -1) if isinstance(term, tuple) else term
        logits = logits.expand(-1, num_heads, tokens, tokens)[:, :, middle]
        if len(logits) > 1:
            return _by_head("content", logits.square().sum(0).sqrt(), grid, centre)
        return _by_head("bias", logits[0], grid, centre)
    ones = torch.ones(1, num_heads, tokens, width)
    q, k = encoding.rotate(ones, ones, place)
    if q is not ones:
        # A pair of ones, turned by two angles, has the product 2 cos(difference).
        cosines = (q[0, :, middle, None] * k[0]).sum(-1) / width
        return _by_head("rotary", cosines, grid, centre)
    if encoding.needs_attn:
        return _value_pattern(encoding, place, middle, num_heads, width, centre)
    answer = encoding.value(ones, place)
    if answer is not None:
        return _border(answer[0].mean(-1).mean(0), grid)
    blank = torch.zeros(1, *grid, embed_dims)
    position = encoding.embed(blank, place) - blank
    answer = encoding.embed(blank + 1, place) - 1
    # What is added whatever the content is a place's own vector, on a single token too.
    if position.abs().max() > 0 and torch.allclose(position, answer, rtol=1e-5, atol=1e-5):
        return _similarity(position[0], grid, centre)
    if answer.abs().max() > 0:
        return _border(answer[0].mean(-1).flatten(), grid)
    raise UserError(f"{encoding.name}: no hook adds anything on a grid of {grid}")


def _by_head(kind: Kind, rows: Tensor, grid: Size, centre: tuple[int, int]) -> Pattern:
    """Rows ``(h, N)`` as maps, heads that say the same once."""
    if len(rows) > 1 and torch.allclose(rows, rows[:1].expand_as(rows)):
        rows, labels = rows[:1], ["all heads"]
    else:
        labels = [f"head {i}" for i in range(len(rows))]
    return Pattern(kind, rows.unflatten(1, grid), tuple(labels), (centre,) * len(rows))


def _value_pattern(
    encoding: PositionEncoding,
    place: Grid,
    middle: int,
    num_heads: int,
    width: int,
    centre: tuple[int, int],
) -> Pattern:
    tokens = place.num_queries
    attn = torch.zeros(tokens, num_heads, tokens, tokens)
    every = torch.arange(tokens)
    attn[every, :, middle, every] = 1.0  # image j: the middle query attends to key j alone
    values = torch.zeros(tokens, num_heads, tokens, width)
    added = encoding.value_attn(attn, values, place)
    if added is None:
        raise UserError(f"{encoding.name}: adds nothing to values on a grid of {place.q}")
    return _by_head("values", added[:, :, middle].norm(dim=-1).t(), place.q, centre)


def _similarity(position: Tensor, grid: Size, centre: tuple[int, int]) -> Pattern:
    """Similarity maps of a position map ``(H, W, C)`` at three places."""
    vectors = torch.nn.functional.normalize(position, dim=-1)
    dots = tuple(dict.fromkeys(((0, 0), centre, (grid[0] - 1, centre[1]))))
    maps = torch.stack([vectors @ vectors[dot] for dot in dots])
    return Pattern("similarity", maps, tuple(f"row {y}, column {x}" for y, x in dots), dots)


def _border(answer: Tensor, grid: Size) -> Pattern:
    return Pattern("border", answer.view(1, *grid), ("mean over channels",), (None,))
