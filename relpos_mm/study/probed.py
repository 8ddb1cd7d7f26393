"""The probes of a study's models in its report."""

from __future__ import annotations

import json
from pathlib import Path

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
        settings = json.dumps([record.settings, record.options], sort_keys=True)
        key = (record.probe, record.task, settings, record.data_sha256 or "")
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
        about = f"{name}, {task} ({LEVEL})" if task else f"{name} ({LEVEL})"
        asked = f": {cls.about}" if cls else ""
        models = f"{len(records)} model{'s' if len(records) > 1 else ''}"
        section.tables.append(Table(head, rows, f"{about}{asked}. {models}"))
        if svg := figure(records):
            section.figures.append((about, svg))
    return section
