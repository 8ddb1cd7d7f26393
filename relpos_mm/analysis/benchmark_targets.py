"""The bars that the project set itself, and whether a record of the benchmark holds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .benchmark import Row
from .benchmark_calls import NEW_GRID_MS
from .benchmark_cells import SHARE, Scaling
from .benchmark_trunk import ADDITIVE

_PRODUCTS = (
    "Most of a step are matrix products, which both sides hand to the same library: what is left\n"
    "to save are the copies of windows and padding, and there is little padding at 224."
)
# What a bar that does not hold is due to, by `Target.key`. No numbers: those are in the record.
WHY: dict[str, str] = {
    "backbone_float32_inference": _PRODUCTS,
    "backbone_float32_training": _PRODUCTS,
    "additive": (
        "An added bias costs a pass over the logits of every block, and its gradient a sum over\n"
        "all windows, which is close to the bar: on a busy machine the order is chance. `dpb` and\n"
        "`logcpb` run a small network for their table in every block on top."
    ),
}


@dataclass(frozen=True)
class Target:
    """One bar: what it is about, what was asked, what was found."""

    key: str
    what: str
    bar: str
    found: str
    met: bool


def targets(record: Mapping[str, Any], rows: Sequence[Row]) -> list[Target]:
    """Return every bar that the record has numbers for."""
    barred = [row for row in rows if row.time_limit is not None]
    found = [*map(_backbone, (row for row in barred if row.suite == "backbones"))]
    found += _trunk([row for row in barred if row.suite == "trunk"])
    found += [_call(row) for row in barred if row.suite == "calls"]
    found += _cells([Scaling(**cell) for cell in record.get("cells", ())])
    found += _no_matrix(record.get("largest_tensor"))
    if record.get("new_grid_ms") is not None:
        ms = record["new_grid_ms"]
        what = "iRPE's bucket ids of a new 25 x 38 grid, for all layers together"
        bar = f"< {NEW_GRID_MS:g} ms"
        found.append(Target("new_grid", what, bar, f"{ms:.2f} ms", ms < NEW_GRID_MS))
    if record.get("parity"):
        parity = record["parity"]
        passed = f"{parity['passed']} passed, {parity['failed']} failed"
        what = "tests against numbers of the public implementations, gradients included"
        met = parity["passed"] > 0 and not parity["failed"]
        found.append(Target("parity", what, "all pass", passed, met))
    return found


def speed_up(row: Row) -> str:
    """Base over contender, with the quartiles of the rounds."""
    return f"{1 / row.ratio:.2f} ({1 / row.ratio_high:.2f} to {1 / row.ratio_low:.2f})"


def cost(row: Row) -> str:
    """Contender over base, with the quartiles of the rounds."""
    return f"{row.ratio:.2f} ({row.ratio_low:.2f} to {row.ratio_high:.2f})"


def _backbone(row: Row) -> Target:
    what = f"Swin-T against {row.base}, {row.size}, {row.dtype}, {row.step}"
    bar = f"≥ {1 / (row.time_limit or 1):.2f}x"
    return _judged(f"backbone_{row.dtype}_{row.step}", what, bar, speed_up(row), row)


def _call(row: Row) -> Target:
    what = f"`{row.name}`, one call on 25 x 38 tokens, {row.step}"
    bar = f"≤ {row.time_limit:.2f}"
    return _judged(f"call_{row.name}_{row.step}", what, bar, cost(row), row)


def _judged(key: str, what: str, bar: str, found: str, row: Row) -> Target:
    if row.memory_limit is not None:
        bar += f", memory ≤ {row.memory_limit:.2f}"
        found += f", memory {row.memory_ratio:.2f}"
    return Target(key, what, bar, found, bool(row.met))


def _trunk(rows: Iterable[Row]) -> Iterator[Target]:
    rows = list(rows)
    additive = sorted((r for r in rows if r.name in ADDITIVE), key=lambda row: row.ratio)
    if additive:
        limit, at = additive[0].time_limit or 1, _setting(additive[0])
        above = [row.name for row in additive if not row.met]
        found = f"{_ends(additive)}; above: {', '.join(above) or 'none'}"
        what = f"{len(additive)} additive encodings in a training step of Swin-T, {at}"
        yield Target("additive", what, f"≤ {limit:.2f}", found, not above)
    for row in rows:
        if row not in additive:
            what = f"`{row.name}` in a training step of Swin-T, {_setting(row)}"
            yield Target(row.name, what, f"≤ {row.time_limit:.2f}", cost(row), bool(row.met))


def _setting(row: Row) -> str:
    return f"{row.size}, {row.dtype}"


def _ends(rows: Sequence[Row]) -> str:
    low, high = rows[0], rows[-1]
    middle = f"{high.ratio_low:.3f} to {high.ratio_high:.3f}"
    return f"{low.ratio:.3f} (`{low.name}`) to {high.ratio:.3f} (`{high.name}`, {middle})"


def _cells(cells: Iterable[Scaling]) -> Iterator[Target]:
    for one in cells:
        what = f"{one.processes} cells of `{one.config}` side by side, throughput over that of one"
        bar = f"≥ {SHARE * one.processes:.2g}x"
        yield Target("cells", what, bar, f"{one.times:.2f}", one.met)


def _no_matrix(largest: Mapping[str, float] | None) -> Iterator[Target]:
    if largest:
        what = "`decomposed`, largest tensor of a training step on 64 x 64 tokens"
        bar = f"< one N x N matrix ({largest['matrix_mib']:.0f} MiB)"
        met = largest["mib"] < largest["matrix_mib"]
        yield Target("no_matrix", what, bar, f"{largest['mib']:.1f} MiB", met)
