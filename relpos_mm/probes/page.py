"""The probes shown in docs/probes.md, from the records that lie beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relpos_mm.analysis.tables import markdown_table, replace_block
from relpos_mm.engine.errors import UserError

from .record import Record, read_records


def update_page(page: str, folder: Path) -> str:
    """Return the text of the page with its block of examples made anew.

    Raises:
        UserError: There are no records, or the page lacks the markers.
    """
    records = read_records([folder])
    if not records:
        raise UserError(f"{folder}: no records of probes (probe_*.json)")
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.probe, record.task), []).append(record)
    parts = [_part(*key, members) for key, members in groups.items()]
    return replace_block(page, "probes", "\n\n".join(parts), "docs/probes.md")


def _part(probe: str, task: str, records: list[Record]) -> str:
    from .show import comparison

    given = {k: v for r in records for k, v in r.settings.items() if v is not None}
    settings = ", ".join(f"`{name}` {_words(value)}" for name, value in given.items())
    configs = ", ".join(f"`{record.config}`" for record in records)
    about = f"`{probe}` on {configs} ({records[0].level}; {settings or 'no settings'}):"
    return f"{about}\n\n{markdown_table(*comparison(records))}"


def _words(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
