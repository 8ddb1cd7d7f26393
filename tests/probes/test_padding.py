"""Padding: told and masked, a relative encoding is blind to it; a stretched table is not."""

from __future__ import annotations

from typing import Any

import pytest

from relpos_mm.probes.padding import Padding

from .toys import ABSOLUTE, RELATIVE, Toy, ToySubject, small

SETTINGS = {"extra": [4, 24], "pictures": 3}


def stages(model: Toy) -> list[float]:
    found = Padding().measure(ToySubject(model), SETTINGS)  # type: ignore[arg-type]
    assert {curve.panel for curve in found.curves} >= {"stage 1, change", "stage 2, change"}
    return [value for name, value in found.numbers.items() if name.startswith("stage")]  # type: ignore[misc]


@pytest.mark.parametrize("position", [(), (RELATIVE,), ({"type": "AxialRope"},)])
def test_masked_padding_changes_nothing(position: Any) -> None:
    changes = stages(Toy(small(*position, mask_padding=True)))
    assert len(changes) == 2
    assert max(changes) < 1e-12


def test_padding_that_takes_part_changes_the_maps() -> None:
    """The published models: windows at the border see padding tokens."""
    assert min(stages(Toy(small(RELATIVE), tells=False))) > 1e-2


def test_a_table_stretched_over_the_padding_changes_them_more() -> None:
    changes = stages(Toy(small(ABSOLUTE, mask_padding=True)))
    assert min(changes) > 0.1


def test_what_is_compared() -> None:
    found = Padding().measure(ToySubject(Toy(small(ABSOLUTE))), SETTINGS)  # type: ignore[arg-type]
    names = ["stage 1, change", "stage 2, change", "classes changed_pct"]
    names.append("top1_pct, padded minus alone")
    assert list(found.numbers) == ["top1_pct, alone", *(f"{name}, +24 px" for name in names)]
    assert [curve.panel for curve in found.curves] == names
    assert all(curve.x == [4, 24] for curve in found.curves)
