"""Records of one probe beside each other: a table of their numbers and a figure of their curves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from relpos_mm.study.figures import INK, LINES, style, svg_of

from .record import Curve, Record

NOTHING = "n/a"
_COLUMNS = 3
_STYLES = ("-", "--", ":", "-.")
_MARKERS = ("o", "s", "^", "D")


def by_variant(record: Record) -> str:
    """Name of the column or colour that a record belongs to when seeds are put together."""
    return record.variant


def by_model(record: Record) -> str:
    """The same when each checkpoint stands alone."""
    return record.label


def comparison(
    records: Sequence[Record], group: Callable[[Record], str] = by_model
) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of a table: a number per row, a column per group of records.

    Where a group holds several records, the cell is mean ± standard deviation (records).
    """
    groups = _grouped(records, group)
    names = dict.fromkeys(name for record in records for name in record.findings.numbers)
    rows = [[name, *(_cell(name, members) for members in groups.values())] for name in names]
    return ["", *groups], rows


def _grouped(records: Iterable[Record], group: Callable[[Record], str]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(group(record), []).append(record)
    return groups


def _cell(name: str, records: Sequence[Record]) -> str:
    found = [record.findings.numbers.get(name) for record in records]
    values = [value for value in found if value is not None]
    if not values:
        return NOTHING
    if len(values) == 1:
        return f"{values[0]:.3g}"
    mean, spread = float(np.mean(values)), float(np.std(values, ddof=1))
    if spread <= 1e-9 * abs(mean):
        return f"{mean:.3g} ({len(values)} alike)"
    if abs(mean) < spread / 1000:
        mean = 0.0  # what rounding leaves of differences that cancel
    return f"{mean:.3g} ± {spread:.2g} ({len(values)})"


def figure(records: Sequence[Record]) -> str | None:
    """Draw every panel of the records as SVG text: a line per model and series.

    A variant has one colour; None where there is no curve.
    """
    panels: dict[str, list[tuple[Record, Curve]]] = {}
    for record in records:
        for curve in record.findings.curves:
            panels.setdefault(curve.panel, []).append((record, curve))
    if not panels:
        return None
    columns = 2 if len(panels) == 4 else min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    size = (max(6.4, 3.2 * columns), 0.5 + 2.5 * rows)
    drawing, grid = plt.subplots(rows, columns, figsize=size, squeeze=False)
    colours = dict(zip(_grouped(records, by_variant), LINES * len(records), strict=False))
    for axes, (title, lines) in zip(grid.flat, panels.items(), strict=False):
        _panel(axes, title, lines, colours)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    drawing.patch.set_facecolor("none")
    named: dict[str, Artist] = {}
    for axes in grid.flat:
        named |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    drawing.tight_layout()
    drawing.legend(
        list(named.values()),
        list(named),
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=min(4, len(named)),
        frameon=False,
        labelcolor=INK,
    )
    return svg_of(drawing)


def _panel(
    axes: Axes, title: str, lines: Sequence[tuple[Record, Curve]], colours: dict[str, str]
) -> None:
    style(axes)
    series = list(dict.fromkeys(curve.series for _, curve in lines))
    for record, curve in lines:
        y = [np.nan if value is None else value for value in curve.y]
        label = ", ".join(filter(None, (record.variant, curve.series)))
        words = any(isinstance(place, str) for place in curve.x)  # nothing lies between them
        axes.plot(
            curve.x,
            y,
            linestyle="none" if words else _STYLES[series.index(curve.series) % len(_STYLES)],
            color=colours[by_variant(record)],
            marker=_MARKERS[series.index(curve.series) % len(_MARKERS)],
            markersize=3,
            linewidth=1.2,
            label=label,
        )
    axes.set_title(title, fontsize=9, color=INK)
    axes.set_xlabel(lines[0][1].x_label, fontsize=8)
    axes.set_ylabel(lines[0][1].y_label, fontsize=8)
    axes.tick_params(labelsize=7)
    axes.margins(x=0.1)
    low, high = axes.get_ylim()
    axes.set_ylim(1.05 * min(low, 0), 1.05 * max(high, 0))  # small changes shall look small
