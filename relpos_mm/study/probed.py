"""The probes of a study's models in its report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relpos_mm.probes.probe import PROBES
from relpos_mm.probes.record import LEVEL, Record, read_records
from relpos_mm.probes.show import by_variant, comparison, figure

from .sections import Section, Table


def probes(folder: Path) -> Section | None:
    """A table and a figure per probe and task from the records in a study's ``probes/``.

    Records of other settings, changed configs or other test data stand apart. None where nothing
    was probed.
    """
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in read_records([folder / "probes"]):
        key = (record.probe, record.task, json.dumps(_facts(record), sort_keys=True, default=str))
        groups.setdefault(key, []).append(record)
    if not groups:
        return None
    section = Section(
        "Mechanism probes",
        [
            f"Level: {LEVEL}. What the trained models do with position, measured by "
            "tools/probe.py on their own test data. None of it is a benchmark, and no verdict "
            "rests on it."
        ],
    )
    for (name, task, *_), records in groups.items():
        cls = PROBES.get(name)
        head, rows = comparison(records, by_variant)
        others = [each[0] for (*at, _), each in groups.items() if at == [name, task]]
        about = f"{name}, {task} ({LEVEL})" if task else f"{name} ({LEVEL})"
        about += _told_apart(records[0], others)
        asked = f": {cls.about}" if cls else ""
        seeds = sorted({record.seed for record in records if record.seed is not None})
        models = f"{len(records)} model{'s' if len(records) > 1 else ''}"
        models += f" of the seeds {', '.join(map(str, seeds))}" if seeds else ""
        told = "mean ± standard deviation (models), fractions and pixels as measured"
        section.tables.append(Table(head, rows, f"{about}{asked}. {models}; {told}"))
        if svg := figure(records):
            section.figures.append((about, svg))
    return section


def _facts(record: Record) -> dict[str, Any]:
    """What two records of a probe must share before they may stand in one table."""
    return {**record.settings, **record.changes, "data": (record.data_sha256 or "unknown")[:12]}


def _told_apart(record: Record, others: Sequence[Record]) -> str:
    """What of its facts tells a record from the others, as text; empty where it is the only one."""
    facts = [_facts(each) for each in others]
    names = dict.fromkeys(name for each in facts for name in each)
    varied = [name for name in names if len({str(each.get(name)) for each in facts}) > 1]
    own = _facts(record)
    told = [f"{name} {own.get(name, 'as in the config')}" for name in varied]
    return f", {', '.join(told)}" if told else ""
