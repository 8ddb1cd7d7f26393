"""Translation: a relative encoding has no absolute place to leak, and the split adds up."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from relpos_mm.engine.errors import UserError
from relpos_mm.probes.cli import main
from relpos_mm.probes.translation import Translation, distances, periods, reach, split

from ..models.tiny import tiny
from .toys import ABSOLUTE, RELATIVE, Toy, ToySubject, small

PICTURE = torch.randn(1, 3, 16, 24, generator=torch.Generator().manual_seed(0)).double()


def test_geometry() -> None:
    assert periods(small(RELATIVE)) == [4, 8]
    # Per stage: one token of 2 and of 4 pixels in each of two blocks, and its own cell.
    assert reach(small(RELATIVE)) == (2 + 2 * 2) + (4 + 2 * 4)
    # A classifier's last windows are smaller: 16, 8, 4, 2 tokens under a window of 7.
    assert periods(tiny(small_map="shrink", pretrain_img_size=64)) == [28, 56, 448, 448]


@pytest.mark.parametrize("position", [(), (RELATIVE,), ({"type": "MixedRope"},)])
def test_relative_encodings_leak_nothing_at_whole_windows(position: Any) -> None:
    """The reference case: exactly 0, up to the rounding of float64."""
    backbone = small(*position)
    whole, token, part = distances(backbone, PICTURE, [8, 4, 3], reach(backbone))
    assert max(whole) < 1e-13
    assert token[0] < 1e-13, "4 px are a whole window of the first stage"
    assert token[1] > 1e-3, "and half a window of the second"
    assert min(part) > 1e-2


def test_an_absolute_table_leaks() -> None:
    (whole,) = distances(small(ABSOLUTE), PICTURE, [8], reach(small()))
    assert min(whole) > 0.1


def test_the_border_gives_place_away() -> None:
    (whole,) = distances(small(RELATIVE), PICTURE, [8], 0)
    assert max(whole) > 1e-3


def test_the_parts_add_up() -> None:
    shifts, distance = [0, 1, 2, 4, 6, 8], [0.0, 0.9, 0.5, 0.1, 0.7, 0.3]
    parts = split(shifts, distance, stride=2, period=4)
    assert parts == pytest.approx({"leakage": 0.2, "phase": 0.4, "aliasing": 0.3})


def test_a_part_that_was_not_measured_is_in_no_other_part() -> None:
    nothing = {"leakage": None, "phase": None, "aliasing": None}
    assert split([0, 3], [0.0, 0.5], 2, 4) == nothing
    assert split([0, 3, 4], [0.0, 0.5, 0.1], 2, 4) == {**nothing, "leakage": 0.1}


@pytest.mark.parametrize("step", [1, 16, 64])
def test_the_parts_are_measured_at_every_step(step: int) -> None:
    subject: Any = ToySubject(Toy(small(RELATIVE)))
    found = Translation().measure(subject, {"step": step, "margin": 0, "pictures": 1})
    for name in ("stage 1, phase", "stage 2, phase", "stage 2, aliasing"):
        assert found.numbers[name] is not None, name


@pytest.mark.parametrize("step", ["0", "65", "100", "x"])
def test_a_step_beyond_the_shifts_is_refused(step: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["translation", "a.py", "a.pth", "--step", step])
    assert "--step" in capsys.readouterr().err


def test_what_is_measured() -> None:
    settings = {"step": 4, "margin": None, "pictures": 2}
    subject: Any = ToySubject(Toy(small(RELATIVE)))
    found = Translation().measure(subject, settings)
    assert found.numbers["stage 2, leakage"] == pytest.approx(0, abs=1e-13)
    assert found.numbers["stage 2, phase"] > 1e-3  # type: ignore[operator]
    assert found.details == {"margin_px": 18, "periods_px": [4, 8]}
    assert [curve.panel for curve in found.curves] == ["stage 1", "stage 2"]
    assert found.curves[0].x == [0, 1, 2, *range(4, 65, 4)]
    assert found.curves[0].y[0] == 0
    with pytest.raises(UserError, match=r"--margin: -1 px is below 0"):
        Translation().measure(subject, {**settings, "margin": -1})


def test_other_backbones_are_refused() -> None:
    subject: Any = ToySubject(Toy(torch.nn.Identity()))
    with pytest.raises(UserError, match=r"toy.py: this probe reads the stages of a RelPosSwin"):
        Translation().measure(subject, {"step": 4, "margin": None, "pictures": 1})
