"""A page of the documents with a table that a measurement renews, and the record beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from relpos_mm.engine.saving import write_atomically

from .benchmark import CPU
from .benchmark_record import Start, circumstances, describe, dump, shortened
from .tables import replace_block

DOCS = Path(__file__).resolve().parents[2] / "docs"
Row = Mapping[str, Any]
Table = Callable[[Sequence[Row]], str]


class MeasuredPage:
    """A page ``docs/NAME.md`` and its record ``docs/NAME.json``.

    Args:
        name: Of the page, without suffix.
        block: Name of the generated block in the page.
        table: Shows the rows of the record as a table in Markdown.
    """

    def __init__(self, name: str, block: str, table: Table) -> None:
        self.path = DOCS / f"{name}.md"
        self.block, self.table = block, table

    def measure(self, rows: Iterable[Row]) -> None:
        """Take the rows on one thread of the CPU, then renew the record and the page.

        Raises:
            UserError: The page lacks the markers of its block.
        """
        torch.set_num_threads(1)
        start = Start()
        taken = [shortened(row) for row in rows]
        record = {**circumstances(CPU, start), "rows": taken}
        page = self.path.read_text(encoding="utf-8")
        page = replace_block(page, self.block, self.shown(record), self.path.name)
        write_atomically(self.path.with_suffix(".json"), dump(record).encode())
        write_atomically(self.path, page.encode())

    def shown(self, record: Mapping[str, Any]) -> str:
        """What the block of the page holds for a record."""
        return f"{describe(record)}\n\n{self.table(record['rows'])}"

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the record if the page shows them.

        Raises:
            UserError: The page lacks the markers of its block.
            ValueError: It shows something else.
        """
        record = json.loads(self.path.with_suffix(".json").read_text(encoding="utf-8"))
        page = self.path.read_text(encoding="utf-8")
        if replace_block(page, self.block, self.shown(record), self.path.name) != page:
            raise ValueError(f"{self.path.name} does not show its record")
        rows: list[dict[str, Any]] = record["rows"]
        return rows
