"""The figures of a report as SVG text that follows the page's colours."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # before pyplot
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .analysis import Comparison, Group
from .stats import HELPS, HURTS

_COLOURS = {HELPS: "#1a9850", HURTS: "#d73027"}
# Three times as light or dark as a white page and as a dark one.
LINES = ("#4575b4", "#e8602c", "#1a9850", "#a05ab4", "#ad6a14", "#0a8f84")
# matplotlib draws with these two; the page says what they are in light and in dark mode.
INK, _PAPER = "#010203", "none"


def svg_of(figure: Figure) -> str:
    """Return a figure as SVG text in the width of its page; ink takes the page's colour."""
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "study"}):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    return re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", text, count=1)


def numbered(svg: str, number: int) -> str:
    """Return a figure with ids that no other figure of the page has."""
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>f{number}-", svg)


def _axes(height: float) -> tuple[Figure, Axes]:
    figure, axes = plt.subplots(figsize=(4.6, height))  # so wide that a phone shows it in full
    figure.patch.set_facecolor(_PAPER)
    style(axes)
    return figure, axes


def style(axes: Axes) -> None:
    """Let axes follow the page's colours."""
    axes.set_facecolor(_PAPER)
    axes.tick_params(colors=INK)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)
    for spine in axes.spines.values():
        spine.set_color(INK)
    axes.spines[["top", "right"]].set_visible(False)


def differences(lines: Sequence[Comparison], metric: str, factor: float = 1.0) -> str:
    """Draw mean, 95 % interval and every seed of the differences of one metric."""
    figure, axes = _axes(0.8 + 0.45 * len(lines))
    for row, line in enumerate(reversed(lines)):
        found = line.difference
        colour = _COLOURS.get(found.verdict, INK)
        points = [factor * value for value in found.values]
        axes.plot(points, [row - 0.18] * len(points), "|", color=colour, alpha=0.6)
        if found.mean is not None:
            axes.plot([factor * found.mean], [row], "o", color=colour)
        if found.interval is not None:
            axes.plot([factor * end for end in found.interval], [row] * 2, "-", color=colour)
    axes.axvline(0, color=INK, linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(lines)), [line.pair for line in reversed(lines)])
    axes.set_ylim(-0.6, len(lines) - 0.4)
    axes.set_xlabel(f"difference in {metric}")
    return svg_of(figure)


def curves(group: Group, metric_key: str = "loss") -> str | None:
    """Draw the training loss of every variant: a line per variant, the mean over its seeds."""
    drawn = False
    figure, axes = _axes(2.6)
    for colour, (variant, records) in zip(LINES * 9, sorted(group.records.items()), strict=False):
        steps: dict[int, list[float]] = {}
        for record in records.values():
            for row in _rows(record.path.parent / "curve.json"):
                if metric_key in row:
                    steps.setdefault(row["step"], []).append(row[metric_key])
        if steps:
            at = sorted(steps)
            axes.plot(at, [sum(steps[s]) / len(steps[s]) for s in at], color=colour, label=variant)
            drawn = True
    if not drawn:
        plt.close(figure)
        return None
    axes.set_xlabel("iteration")
    axes.set_ylabel("training loss")
    axes.legend(frameon=False, labelcolor=INK)
    return svg_of(figure)


def _rows(path: Path) -> Iterable[dict]:
    try:
        return [json.loads(line) for line in path.read_text().splitlines()]
    except (OSError, ValueError):
        return []


def knob(
    lines: Sequence[Comparison], worlds: Mapping[str, Mapping[str, Any]], metric: str
) -> str | None:
    """Draw differences against layout strength, one line per pair and set of other knobs.

    Args:
        lines: Comparisons of one metric.
        worlds: Knobs by name of the world.
        metric: Its title.

    Returns:
        The figure as SVG text; None where no world sets ``layout_pct``.
    """
    series: dict[str, list[tuple[int, Comparison]]] = {}
    for line in lines:
        knobs = dict(worlds.get(line.group.world, {}))
        strength = knobs.pop("layout_pct", None)
        if strength is not None and line.difference.mean is not None:
            others = (f"{name} {value}" for name, value in knobs.items())
            name = ", ".join([line.pair, *others])
            series.setdefault(name, []).append((strength, line))
    if not series:
        return None
    figure, axes = _axes(3)
    for place, (colour, (name, points)) in enumerate(zip(LINES * 9, series.items(), strict=False)):
        points.sort(key=lambda point: point[0])
        # Side by side, or intervals hide each other.
        at = [strength + 1.5 * (place - (len(series) - 1) / 2) for strength, _ in points]
        means, below, above = [], [], []
        for _, line in points:
            mean = line.difference.mean or 0.0  # it is there, or the line would not be
            low, high = line.difference.interval or (mean, mean)
            means.append(mean)
            below.append(mean - low)
            above.append(high - mean)
        axes.errorbar(at, means, [below, above], color=colour, marker="o", label=name, capsize=3)
    axes.axhline(0, color=INK, linewidth=0.8, linestyle=":")
    axes.set_xlabel("layout strength, %")
    axes.set_ylabel(f"difference in {metric}")
    axes.legend(
        frameon=False, labelcolor=INK, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2
    )
    return svg_of(figure)
