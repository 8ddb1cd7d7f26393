"""Distance penalties with heads that look in one direction only (LookHere)."""

from __future__ import annotations

from math import inf
from typing import ClassVar, Literal

import torch
from torch import Tensor

from relpos_mm.registry import POSITIONS

from .arguments import require_counts, require_positive
from .base import PositionEncoding
from .distances import distances, offset_distances
from .grid import Grid, Size
from .made_once import constant, made_once
from .offsets import offset_set

# A head sees the keys that lie in all directions of its tuple; offsets are query minus key.
_VIEWS: dict[str, tuple[tuple[str, ...], ...]] = {
    "halves": (("up",), ("down",), ("left",), ("right",)),
    "corners": (("up", "left"), ("up", "right"), ("down", "left"), ("down", "right")),
    "triangles": (("upward",), ("downward",), ("leftward",), ("rightward",)),
    "eighths": (
        ("upward", "left"),
        ("downward", "left"),
        ("leftward", "up"),
        ("rightward", "up"),
        ("upward", "right"),
        ("downward", "right"),
        ("leftward", "down"),
        ("rightward", "down"),
    ),
}
_UNDIRECTED = (1 / 4, 1 / 16, 1 / 64, 1 / 256)


@POSITIONS.register_module()
class DirectedDistance(PositionEncoding):
    """``B = -slope * layer_slope * head_slope * |p_q - p_k|`` in a head's view, else -infinity.

    Source: LookHere, section 3, and its public code. The views are half planes (up, down, left,
    right), quadrants (up-left, up-right, down-left, down-right), triangles of 90 degrees (up, down,
    left, right) or the eight triangles of 45 degrees. Directed heads come first, the directions in
    turn, with head slope 1/2 in the first turn, 1/4 in the next and so on; undirected heads follow
    with slopes 1/4, 1/16, 1/64, 1/256. The public code knows 6, 12 and 16 heads (4 + 2, 8 + 4, 8 +
    8); the rule for any number here is ``4 max(h // 6, 1)`` directed heads from 4 heads on and none
    below, which gives those. The layer slope falls from 1.5 in the first block of the model to 0.5
    in the last.

    Scale rule: added after scaling. Sign rule: "up" sees keys whose row is not greater. A token
    always sees itself, so no mask of the host can leave a row without a finite number. The public
    code keeps the bias in bfloat16 (distances above 256 lose their last bit) with its largest
    number for infinity; here it is float32 with infinity.

    No parameters; recomputed for every size. Distances count in units of ``Grid.step``.

    Args:
        num_heads: Attention heads h.
        layer: Index of the block in the model; None leaves the layer slope out.
        depth: Number of blocks of the model.
        directions: ``halves``, ``corners``, ``triangles`` or ``eighths``.
        undirected: Number of heads that see everything; by default the rule above.
        slope: Factor of the whole bias; a smaller one looks further on larger maps.

    Raises:
        ValueError: Unknown ``directions``, or ``undirected`` or ``layer`` outside their range.
    """

    slug: ClassVar[str] = "lookhere"

    def __init__(
        self,
        *,
        num_heads: int,
        layer: int | None = None,
        depth: int | None = None,
        directions: Literal["halves", "corners", "triangles", "eighths"] = "halves",
        undirected: int | None = None,
        slope: float = 1.0,
    ) -> None:
        super().__init__()
        require_counts("DirectedDistance", num_heads=num_heads)
        require_positive("DirectedDistance", slope=slope)
        if directions not in _VIEWS:
            known = ", ".join(_VIEWS)
            raise ValueError(f"DirectedDistance: directions must be {known}, got {directions!r}")
        if undirected is None:
            directed = 4 * max(num_heads // 6, 1) if num_heads >= 4 else 0
            undirected = num_heads - directed
        require_counts("DirectedDistance", least=0, undirected=undirected)
        if undirected > num_heads:
            raise ValueError(f"DirectedDistance: {undirected} undirected of {num_heads} heads")
        if (layer is None) != (depth is None):
            raise ValueError(f"DirectedDistance: layer {layer} of depth {depth}; give both or none")
        if layer is not None and depth is not None:
            require_counts("DirectedDistance", depth=depth)
            require_counts("DirectedDistance", least=0, layer=layer)
            if layer >= depth:
                raise ValueError(f"DirectedDistance: layer {layer} of depth {depth}")
        self.directions = directions
        self.undirected = undirected
        if layer is not None and depth is not None:
            slope *= 1.5 - layer / max(depth - 1, 1)
        slopes = _head_slopes(num_heads - undirected, undirected, len(_VIEWS[directions]))
        self.slopes = tuple(slope * head_slope for head_slope in slopes)

    def bias(self, q: Tensor, k: Tensor, grid: Grid, scale: float) -> Tensor:
        hidden = hidden_pairs(grid.q, grid.k, self.directions, q.device)
        return self._penalty(distances(grid, q.device), hidden).unsqueeze(0)  # (1, h, Nq, Nk)

    def offset_table(self, grid: Grid, device: torch.device) -> Tensor | None:
        table = offset_distances(grid, device)
        if table is None:
            return None
        offsets = offset_set(grid.q, grid.k, (1.0, 1.0), device)[0]
        dy, dx = offsets.unflatten(0, table.shape).unbind(-1)
        return self._penalty(table, _hidden(dy, dx, self.directions))

    def _penalty(self, distance: Tensor, hidden: Tensor) -> Tensor:
        """Logits ``(h, ., .)`` of distances, with what directed heads do not see at -infinity."""
        penalty = constant(self.slopes, torch.float32, distance.device)[:, None, None] * distance
        directed = len(self.slopes) - self.undirected
        turn = torch.arange(directed, device=distance.device) % len(hidden)
        penalty[:directed].masked_fill_(hidden[turn], inf)
        return -penalty

    def extra_repr(self) -> str:
        return f"directions={self.directions!r}, slopes={self.slopes}, undirected={self.undirected}"


def _head_slopes(directed: int, undirected: int, turn: int) -> list[float]:
    """Slope of every head: halved after each turn of the directions; undirected ones share four."""
    shares = max(undirected, len(_UNDIRECTED))
    return [2.0 ** -(head // turn + 1) for head in range(directed)] + [
        _UNDIRECTED[head * len(_UNDIRECTED) // shares] for head in range(undirected)
    ]


@made_once(maxsize=32)
def hidden_pairs(
    query_size: Size, key_size: Size, directions: str, device: torch.device | str = "cpu"
) -> Tensor:
    """Pairs outside each direction's view ``(4|8, Nq, Nk)`` bool, True = hidden."""
    # Pooled queries that lie between keys stand on the one before, so that each sees a key.
    queries = Grid(query_size, key_size).coords("q", device).floor()
    keys = Grid(query_size, key_size).coords("k", device)
    dy, dx = (queries[:, None] - keys[None, :]).unbind(-1)
    return _hidden(dy, dx, directions)


def _hidden(dy: Tensor, dx: Tensor, directions: str) -> Tensor:
    """Offsets outside each direction's view ``(4|8, ...)`` bool."""
    sees = {
        "up": dy >= 0,
        "down": dy <= 0,
        "left": dx >= 0,
        "right": dx <= 0,
        "upward": dy >= dx.abs(),
        "downward": -dy >= dx.abs(),
        "leftward": dx >= dy.abs(),
        "rightward": -dx >= dy.abs(),
    }
    views = [torch.stack([sees[name] for name in view]).all(0) for view in _VIEWS[directions]]
    return ~torch.stack(views)
