"""Rows of a benchmark that nobody measured."""

from __future__ import annotations

from typing import Any

from relpos_mm.analysis.benchmark import Row


def row(**changes: Any) -> Row:
    """A row of the suite ``calls`` with some values changed."""
    values: dict[str, Any] = dict(suite="calls", size="detr", dtype="float32", base="none")
    values |= dict(name="irpe_k", step="training", rounds=3, base_ms=10.0, ms=12.0)
    values |= dict(ratio=1.2, ratio_low=1.1, ratio_high=1.3, wall_ratio=1.4, base_mib=4.0, mib=5.0)
    return Row(**{**values, "error": 1e-7, "time_limit": None, "memory_limit": None, **changes})
