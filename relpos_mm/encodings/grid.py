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
        set_(self, "q", _size(self.q, "q"))
        set_(self, "k", self.q if self.k is None else _size(self.k, "k"))
        if self.prefix < 0:
            raise ValueError(f"Grid.prefix must not be negative, got {self.prefix}")
        if self.valid is not None:
            rows = self.valid.tolist() if isinstance(self.valid, Tensor) else self.valid
            valid = tuple(_size(pair, "valid") for pair in rows)
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


def _size(pair: Sequence[int], name: str) -> Size:
    height, width = (int(side) for side in pair)
    if height < 1 or width < 1:
        raise ValueError(f"Grid.{name} must be at least 1 x 1, got {height} x {width}")
    return height, width
