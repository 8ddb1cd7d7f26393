"""Whole random numbers that are the same on every machine and with every NumPy version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


class Stream:
    """Random integers for one key, independent of every other key.

    NumPy keeps the raw 64 bits of PCG64 and its seeding stable for ever, but not what `Generator`
    makes of them, so numbers are derived here. A key per picture makes each picture a function of
    its index alone: the order of writing and the number of workers do not matter.

    Args:
        key: Non-negative integers, for example seed, split and index.
    """

    def __init__(self, *key: int) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence(key))

    def below(self, bound: int) -> int:
        """An integer in [0, bound)."""
        return ((int(self._bits.random_raw()) >> 32) * bound) >> 32

    def between(self, low: int, high: int) -> int:
        """An integer in [low, high], both ends included."""
        return low + self.below(high - low + 1)

    def percent(self, chance: int) -> bool:
        """True in `chance` of 100 cases."""
        return self.below(100) < chance

    def pick(self, choices: Sequence[T]) -> T:
        """One of the choices."""
        return choices[self.below(len(choices))]

    def bell(self, sigma: int) -> int:
        """Roughly normal with this standard deviation: the sum of three uniform integers."""
        return sum(self.between(-sigma, sigma) for _ in range(3))

    def grid(self, shape: tuple[int, ...], bound: int) -> np.ndarray:
        """An int64 array of integers in [0, bound)."""
        raw = self._bits.random_raw(int(np.prod(shape))) >> np.uint64(32)
        return ((raw * np.uint64(bound)) >> np.uint64(32)).astype(np.int64).reshape(shape)
