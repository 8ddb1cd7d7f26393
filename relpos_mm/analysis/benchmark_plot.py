"""The curves of a record: cost against tokens per call, and against the size of the picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # before pyplot
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from .benchmark import Row
from .benchmark_calls import FUSED, PUBLISHED, SHAPES

# The families that differ; all others are drawn in grey.
_SHOWN = {
    "rel": "#4575b4",
    "dpb": "#01665e",
    "rope_axial": "#1a9850",
    "irpe_k": "#d73027",
    "irpe_v": "#f46d43",
    "decomposed": "#762a83",
    "disentangled": "#8c510a",
}
_OTHERS = "#bbbbbb"


def plot(record: Mapping[str, Any], path: Path) -> None:
    """Draw the training steps of a record into an svg, png or pdf file."""
    rows = [Row(**row) for row in record["rows"]]
    rows = [row for row in rows if (row.dtype, row.step) == ("float32", "training")]
    with matplotlib.rc_context({"svg.hashsalt": "benchmark", "svg.fonttype": "none"}):
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2))
        calls = [row for row in rows if row.suite == "calls"]
        calls = [row for row in calls if row.name not in (FUSED, *PUBLISHED)]
        _curves(left, calls, lambda size: SHAPES[size].tokens)
        left.set(title="one attention call", xlabel="tokens per call", yscale="log")
        _plain_ticks(left.yaxis, (0.5, 0.7, 1, 1.5, 2, 3, 5, 8))
        _curves(right, [row for row in rows if row.suite == "trunk"], _pixels)
        right.set(title="Swin-T", xlabel="pixels per step")
        left.set_ylabel("training step, time over that without encoding")
        figure.tight_layout()
        metadata = {"Date": None} if path.suffix == ".svg" else None
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata=metadata, facecolor="white")
        plt.close(figure)


def _curves(axes: Axes, rows: Sequence[Row], position: Callable[[str], int]) -> None:
    """Draw a line per encoding; the ticks are the sizes that were measured."""
    series: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        series.setdefault(row.name, []).append((position(row.size), row.ratio))
    # Those with a colour come last, so that they lie above the grey ones.
    for name in sorted(series, key=lambda name: (name in _SHOWN, name)):
        at, ratios = zip(*sorted(series[name]), strict=True)
        shown = name in _SHOWN
        axes.plot(
            at,
            ratios,
            marker="o",
            markersize=4 if shown else 2,
            linewidth=1.6 if shown else 0.8,
            color=_SHOWN.get(name, _OTHERS),
            label=name if shown else "_",
        )
    axes.axhline(1, color="black", linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    _plain_ticks(axes.xaxis, sorted({position(row.size) for row in rows}))
    axes.spines[["top", "right"]].set_visible(False)
    if any(name in _SHOWN for name in series):
        axes.legend(frameon=False, fontsize="small")


def _plain_ticks(axis: Axis, at: Sequence[float]) -> None:
    """Label a logarithmic axis with plain numbers at these places and nowhere else."""
    axis.set_major_locator(FixedLocator(at))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_locator(NullLocator())


def _pixels(size: str) -> int:
    return prod(map(int, size.split("x")))
