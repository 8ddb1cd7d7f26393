"""The rectangular token grid that one attention call works on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Literal

import torch
from torch import Tensor

from .arguments import require_positive

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
        ValueError: A size below 1, a ``prefix`` that is no number of tokens, a ``step`` that is no
            pair of distances, or a valid region outside the grid.
    """

    q: Size
    k: Size = None  # type: ignore[assignment]  # never None after construction
    prefix: int = 0
    step: tuple[float, float] = (1.0, 1.0)
    valid: Sequence[Size] | Tensor | None = None

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "q", pair_of_counts(self.q, "Grid.q"))
        set_(self, "k", self.q if self.k is None else pair_of_counts(self.k, "Grid.k"))
        if (
            not isinstance(self.prefix, Integral)
            or isinstance(self.prefix, bool)
            or self.prefix < 0
        ):
            raise ValueError(
                f"Grid.prefix must be a whole number of tokens, at least 0, got {self.prefix!r}"
            )
        set_(self, "step", _step(self.step))
        if self.valid is not None:
            rows = self.valid.tolist() if isinstance(self.valid, Tensor) else self.valid
            pairs = rows if isinstance(rows, Iterable) else [rows]
            valid = tuple(pair_of_counts(pair, "Grid.valid") for pair in pairs)
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
    sides = (value, value) if isinstance(value, Integral) else value
    try:
        return pair_of_counts(sides, name)  # type: ignore[arg-type]
    except ValueError:
        message = f"{name} must be a number or (H, W), at least 1, got {value!r}"
        raise ValueError(message) from None


def pair_of_counts(pair: Sequence[int], name: str) -> Size:
    """``(H, W)`` from two whole numbers.

    Raises:
        ValueError: Anything else, or a side below 1; the message names it ``name``.
    """
    sides = tuple(pair) if isinstance(pair, Iterable) and not isinstance(pair, str) else ()
    if len(sides) != 2 or not all(map(_is_count, sides)):
        shown = " x ".join(map(str, sides)) or repr(pair)
        raise ValueError(f"{name} must be (H, W) of at least 1 x 1, got {shown}")
    return int(sides[0]), int(sides[1])


def _is_count(side: int) -> bool:
    try:
        return int(side) == side and side >= 1 and not isinstance(side, bool)
    except (TypeError, ValueError, OverflowError):
        return False


def _step(pair: Sequence[float]) -> tuple[float, float]:
    if isinstance(pair, str | bytes) or not isinstance(pair, Sequence) or len(pair) != 2:
        raise ValueError(f"Grid.step must be distances (rows, columns), got {pair!r}")
    require_positive("Grid.step", rows=pair[0], columns=pair[1])
    return float(pair[0]), float(pair[1])
