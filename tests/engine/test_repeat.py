"""Random numbers by place: the numbers of torch's own seeding, without what it costs."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from relpos_mm.engine import repeat
from relpos_mm.engine.repeat import seed_all


def drawn() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


@pytest.fixture
def seeds_of_torch(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note what torch's slow seeding of all devices is called with."""
    seeds: list[int] = []

    def seed(value: int) -> None:
        seeds.append(value)
        torch.default_generator.manual_seed(value)

    monkeypatch.setattr(torch, "manual_seed", seed)
    return seeds


def test_without_a_gpu_only_the_cpu_generator_is_seeded(
    seeds_of_torch: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeat, "get_device", lambda: "cuda")
    seed_all(5, 1, 2)
    expected = drawn()
    assert len(seeds_of_torch) == 1
    monkeypatch.setattr(repeat, "get_device", lambda: "cpu")
    seed_all(5, 1, 2)
    assert drawn() == expected, "the same numbers as with a GPU"
    assert len(seeds_of_torch) == 1


def test_places_draw_different_numbers() -> None:
    numbers = set()
    for place in ((5, 0, 1), (5, 1, 1), (5, 0, 2), (6, 0, 1)):
        seed_all(*place)
        numbers.add(drawn())
    assert len(numbers) == 4
