"""The rectangular token grid that one attention call works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Size = tuple[int, int]


@dataclass(frozen=True)
class Grid:
    """Where the tokens of one attention call stand; all an encoding ever learns of its host.

    Tokens are row-major, prefix tokens (class, registers) come first. Windows, shifts and masks
    belong to the host and do not appear here.

    Attributes:
        q: Query grid ``(H, W)``.
        k: Key grid; equal to ``q`` when not given.
        prefix: Number of leading tokens without a place on the grid.
        step: Distance between neighbouring tokens ``(rows, columns)``: 1 in a dense grid, the
            dilation where tokens are taken at a stride.
        valid: Real content of each image in tokens, ``((h, w), ...)``, anchored at the top left;
            ``None`` when the whole grid is content.

    Raises:
        ValueError: A size below 1, a negative ``prefix``, or a valid region outside the grid.
    """

    q: Size
    k: Size = None  # type: ignore[assignment]  # never None after construction
    prefix: int = 0
    step: tuple[float, float] = (1.0, 1.0)
    valid: Sequence[Size] | Tensor | None = None

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "q", _size(self.q, "Grid.q"))
        set_(self, "k", self.q if self.k is None else _size(self.k, "Grid.k"))
        if self.prefix < 0:
            raise ValueError(f"Grid.prefix must not be negative, got {self.prefix}")
        if self.valid is not None:
            rows = self.valid.tolist() if isinstance(self.valid, Tensor) else self.valid
            valid = tuple(_size(pair, "Grid.valid") for pair in rows)
            if any(h > self.q[0] or w > self.q[1] for h, w in valid):
                raise ValueError(f"Grid.valid {valid} reaches outside the grid {self.q}")
            set_(self, "valid", valid)

    @property
    def num_queries(self) -> int:
        """Number of query tokens, prefix included."""
        return self.prefix + self.q[0] * self.q[1]

    @property
    def num_keys(self) -> int:
        """Number of key tokens, prefix included."""
        return self.prefix + self.k[0] * self.k[1]

    def coords(
        self, which: Literal["q", "k"] = "q", device: torch.device | str | None = None
    ) -> Tensor:
        """Positions ``(N, 2)`` as (row, column), float32, in units of key tokens times ``step``."""
        height, width = self.q if which == "q" else self.k
        rows = torch.arange(height, dtype=torch.float32, device=device)
        columns = torch.arange(width, dtype=torch.float32, device=device)
        if which == "q" and self.k != self.q:
            rows, columns = rows * (self.k[0] / height), columns * (self.k[1] / width)
        rows, columns = rows * self.step[0], columns * self.step[1]
        return torch.stack(torch.meshgrid(rows, columns, indexing="ij"), dim=-1).flatten(0, 1)

    def offsets(self, device: torch.device | str | None = None) -> Tensor:
        """Offsets query minus key ``(Nq, Nk, 2)``, rows first, float32, in key units."""
        return self.coords("q", device)[:, None] - self.coords("k", device)[None, :]


def as_size(name: str, value: int | Sequence[int]) -> Size:
    """``(H, W)`` from one number for both or from two; a tuple, because caches use it as a key.

    Raises:
        ValueError: Anything else, or a side below 1; the message names it ``name``.
    """
    sides = (value, value) if isinstance(value, int) else value
    try:
        return _size(sides, name)
    except (TypeError, ValueError):
        message = f"{name} must be a number or (H, W), at least 1, got {value!r}"
        raise ValueError(message) from None


def _size(pair: Sequence[int], name: str) -> Size:
    sides = () if isinstance(pair, int | float) else tuple(pair)
    if len(sides) != 2 or any(int(side) != side or side < 1 for side in sides):
        shown = " x ".join(map(str, sides)) or repr(pair)
        raise ValueError(f"{name} must be (H, W) of at least 1 x 1, got {shown}")
    return int(sides[0]), int(sides[1])
