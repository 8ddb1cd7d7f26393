"""Runs a check over many files with processes and a progress bar."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from mmengine.utils import track_progress_rich

T = TypeVar("T")
_BATCH = 64


def check_all(
    check: Callable[[Any], T], items: Sequence[Any], *, workers: int, what: str
) -> list[T]:
    """Applies `check` to every item, in order.

    Args:
        check: A function that can be sent to another process.
        items: One argument each.
        workers: Processes; 0 means one per core.
        what: Label of the progress bar.
    """
    if not items:
        return []
    batches = [(check, items[i : i + _BATCH]) for i in range(0, len(items), _BATCH)]
    processes = min(workers or os.cpu_count() or 1, len(batches))
    results = track_progress_rich(_apply, batches, nproc=processes, description=what)
    return [result for batch in results for result in batch]


def spread(items: Sequence[Any], limit: int | None) -> Sequence[Any]:
    """At most `limit` items, evenly spread; all of them when it is None."""
    if limit is None or len(items) <= limit:
        return items
    return [items[i * len(items) // limit] for i in range(limit)]


def spread_and_missing(
    items: Sequence[Any], limit: int | None, path_of: Callable[[Any], Path]
) -> Sequence[Any]:
    """`spread`, and every item whose file is not there: a limit never hides those."""
    chosen = spread(items, limit)
    if len(chosen) == len(items):
        return chosen
    taken = {path_of(item) for item in chosen}
    others = (item for item in items if path_of(item) not in taken)
    return [*chosen, *(item for item in others if not os.path.exists(path_of(item)))]


def _apply(check: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
    return [check(item) for item in items]
