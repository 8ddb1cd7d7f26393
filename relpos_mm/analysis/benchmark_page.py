"""The benchmark's page of the documents: its record is renewed by suites, and the page shows it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from relpos_mm.engine.errors import UserError
from relpos_mm.engine.saving import write_atomically

from .benchmark import SUITES
from .benchmark_plot import plot
from .benchmark_record import dump
from .benchmark_report import PICTURE, render

_LISTS = ("runs", "left_out", "rows")
# Numbers of a record beside these, and the suite that they belong to.
_SUITE_OF = {
    "parity": "parity",
    "cells": "cells",
    "new_grid_ms": "calls",
    "largest_tensor": "calls",
}


def read_record(path: Path) -> dict[str, Any]:
    """Return a record that ``tools/benchmark.py`` wrote.

    Raises:
        UserError: It cannot be read, or is no such record.
    """
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        unknown = [key for key in _LISTS if key not in record]
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} is no record of the benchmark: {error}") from None
    if unknown:
        raise UserError(f"{path} is no record of the benchmark: it lacks {', '.join(unknown)}")
    return record


def require_whole(record: Mapping[str, Any]) -> None:
    """Refuse a record whose suites were narrowed: the page would lose the other rows.

    Raises:
        UserError: Names the flags.
    """
    if flags := sorted({flag for run in record["runs"] for flag in run.get("narrowed", ())}):
        raise UserError(f"--doc renews whole suites: measure without {', '.join(flags)}")


def renewed(record: Mapping[str, Any], by: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record in which another one's suites take the place of its own.

    What is left of the old one keeps the circumstances under which it was measured.
    """
    new = {suite for run in by["runs"] for suite in run["suites"]}
    runs = [_without(run, new) for run in record["runs"]]
    names = dict.fromkeys(key for one in (record, by) for key in one if key not in _LISTS)
    numbers = {key: (by if _SUITE_OF[key] in new else record).get(key) for key in names}
    return {
        "runs": [*(run for run in runs if run["suites"]), *by["runs"]],
        **{key: value for key, value in numbers.items() if value is not None},
        **{key: _renewed_rows(record[key], by[key], new) for key in ("left_out", "rows")},
    }


def _without(run: Mapping[str, Any], gone: set[str]) -> dict[str, Any]:
    suites = [suite for suite in run["suites"] if suite not in gone]
    since = [*run.get("renewed", ()), *(suite for suite in run["suites"] if suite in gone)]
    return {**run, "suites": suites, **({"renewed": since} if since else {})}


def _renewed_rows(
    old: Iterable[Mapping[str, Any]], by: Iterable[Mapping[str, Any]], suites: set[str]
) -> list[Mapping[str, Any]]:
    kept = [one for one in old if one["suite"] not in suites]
    taken = [one for one in by if one["suite"] in suites]
    return sorted([*kept, *taken], key=lambda one: SUITES.index(one["suite"]))


def write_page(docs: Path, old: Mapping[str, Any] | None, record: Mapping[str, Any]) -> None:
    """Write ``performance.{json,md}`` and their picture.

    Args:
        docs: Folder of the documents.
        old: Record of the page so far, whose other suites stay.
        record: What was measured.
    """
    record = renewed(old, record) if old else record
    page = render(record).encode()  # before anything is written
    write_atomically(docs / "performance.json", dump(record).encode())
    write_atomically(docs / "performance.md", page)
    plot(record, docs / PICTURE)
