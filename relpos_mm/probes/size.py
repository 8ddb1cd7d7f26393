"""Other sizes and shapes than those of training: larger objects and larger canvases apart."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from relpos_mm.encodings.grid import Size
from relpos_mm.engine.options import count

from .placing import Placing, PlacingOf, predict
from .probe import PROBES, Probe
from .record import Curve, Findings
from .subject import Subject


def both(factor: float) -> PlacingOf:
    """Objects and canvas grow together: the picture is resized."""
    return lambda size: Placing(enlarge=(factor, factor))


def centred(size: Size, canvas: float, enlarge: float = 1.0) -> Placing:
    """Return a picture, enlarged, in the middle of ``canvas`` times its own size."""
    sides = (round(size[0] * canvas), round(size[1] * canvas))
    free = [side - max(1, round(s * enlarge)) for side, s in zip(sides, size, strict=True)]
    if not any(free):
        return Placing((enlarge, enlarge))
    return Placing((enlarge, enlarge), sides, (free[0] // 2, free[1] // 2))


def canvas(factor: float) -> PlacingOf:
    """Objects keep their size on a larger canvas."""
    return lambda size: centred(size, factor)


def objects(factor: float, largest: float) -> PlacingOf:
    """Objects grow on a canvas that keeps its size, ``largest`` times the picture."""
    return lambda size: centred(size, largest, factor)


def aspect(factor: float) -> PlacingOf:
    """The picture becomes ``factor`` times as high for its width, at the same area."""
    return lambda size: Placing(enlarge=(factor**0.5, factor**-0.5))


@PROBES.register_module("size")
class SizeProbe(Probe):
    """Evaluate on resized pictures, on larger canvases, and on objects enlarged within a canvas.

    Resizing changes two things at once; the other two change one each. Every curve is relative to
    its own value at factor 1, and its number is the mean over the curve (area, logarithmic axis):
    1 where size does not matter.
    """

    about: ClassVar[str] = "other sizes and shapes, larger objects and larger canvas kept apart"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--factors", type=_factor, nargs="+", default=[0.5, 0.75, 1.0, 1.5, 2.0], metavar="F"
        )
        parser.add_argument(
            "--aspects", type=_factor, nargs="+", default=[1 / 3, 0.5, 1.0, 2.0, 3.0], metavar="F"
        )
        parser.add_argument("--pictures", type=count, default=32, help="of the test set")

    def measure(self, subject: Subject, settings: dict[str, Any]) -> Findings:
        metric, found = subject.metric, Findings()
        factors = sorted({1.0, *settings["factors"]})
        growing = [factor for factor in factors if factor >= 1]
        axes: dict[str, tuple[list[float], Callable[[float], PlacingOf]]] = {
            "objects and canvas": (factors, both),
            "canvas": (growing, canvas),
            "objects": (growing, lambda factor: objects(factor, growing[-1])),
            "aspect": (sorted({1.0, *settings["aspects"]}), aspect),
        }
        scores: dict[Placing, float | None] = {}
        for name, (places, placing) in axes.items():
            values = []
            for factor in places:
                key = placing(factor)((1000, 1000))  # equal ways are measured once
                if key not in scores:
                    scores[key] = self._score(subject, placing(factor), settings["pictures"])
                values.append(scores[key])
            relative = relative_to_one(places, values)
            found.numbers[f"{name}, mean of relative {metric}"] = area(places, relative)
            label = "height : width" if name == "aspect" else "factor"
            found.curves.append(Curve(name, places, values, label, metric))
        found.numbers = {
            f"{metric} at factor 1": found.curves[0].y[factors.index(1.0)]
        } | found.numbers
        return found

    @staticmethod
    def _score(subject: Subject, placing: PlacingOf, pictures: int) -> float | None:
        def look(batch: dict[str, Any]) -> list[Any]:
            return [predict(subject.model, batch, placing)]

        return subject.score(look, pictures)[subject.metric]


def relative_to_one(places: list[float], values: list[float | None]) -> list[float | None]:
    """Divide by the value at factor 1; nothing where that is 0 or missing."""
    base = values[places.index(1.0)]
    return [None if not base or value is None else value / base for value in values]


def area(places: list[float], values: list[float | None]) -> float | None:
    """Return the mean height of a curve over the logarithm of its places; None with gaps."""
    if len(places) < 2 or any(value is None for value in values):
        return None
    at, heights = np.log(places), np.array(values, dtype=float)
    return float(np.trapezoid(heights, at) / (at[-1] - at[0]))


def _factor(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 10:
        raise argparse.ArgumentTypeError(f"{text!r} is no factor from 0.1 to 10")
    return value
