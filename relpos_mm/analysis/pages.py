"""The generated parts of docs/encodings/: costs, pictures and the index."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from .catalogue import CATALOGUE
from .cost_report import catalogue_costs, page_table
from .draw import draw, example
from .tables import markdown_table, replace_block

RECORD = "cost.json"
_COST_NOTE = (
    "Counted by `tools/update_encodings.py` for one picture, as difference to the same network "
    "without encodings. MMAC are multiply-adds in matrix products and convolutions; MiB is what a "
    "training step keeps for the backward pass."
)

_NOT_COUNTED = "Not counted yet: `python tools/update_encodings.py --costs` does it."


def pages(folder: Path) -> dict[Path, list[str]]:
    """Pages of a folder, with the catalogue names that each one's heading comment lists."""
    found = {}
    for path in sorted(folder.glob("*.md")):
        names = re.search(r"<!-- settings: ([\w, ]+) -->", path.read_text(encoding="utf-8"))
        if names:
            found[path] = [name.strip() for name in names.group(1).split(",")]
    return found


def write_costs(folder: Path) -> None:
    """Count every catalogue name anew and keep the numbers as ``cost.json``."""
    text = json.dumps(catalogue_costs(), indent=1)
    (folder / RECORD).write_text(text + "\n", encoding="utf-8")


def write_pictures(folder: Path) -> None:
    """Draw the first setting of every page."""
    for page, names in pages(folder).items():
        shown, values = example(names[0])
        draw(shown, folder / "pictures" / f"{page.stem}.png", f"{names[0]} ({values})")


def rendered(folder: Path) -> dict[Path, str]:
    """Return the text that every page and the index should have, generated parts renewed.

    Raises:
        UserError: A page has lost its markers.
    """
    file = folder / RECORD
    record: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    texts = {}
    rows = []
    for page, names in pages(folder).items():
        text = page.read_text(encoding="utf-8")
        counted = [name for name in names if name in record]
        block = f"{page_table(record, counted)}\n\n{_COST_NOTE}" if counted else _NOT_COUNTED
        texts[page] = replace_block(text, "cost", block, page.name)
        rows += [_index_row(page, text, name, record.get(name)) for name in names]
    index = folder / "README.md"
    header = ["setting", "page", "acts on", "parameters in Swin-T", "+ MMAC at 224"]
    table = markdown_table(header, rows)
    texts[index] = replace_block(index.read_text(encoding="utf-8"), "index", table, index.name)
    return texts


def _index_row(page: Path, text: str, name: str, costs: dict[str, Any] | None) -> list[str]:
    title = text.splitlines()[0].removeprefix("# ")
    where = re.search(r"<!-- acts on: (.+) -->", text)
    cost = next(iter(costs.values())) if costs else None
    return [
        f"`{name}`",
        f"[{title}]({page.name})",
        where.group(1) if where else "",
        f"{cost['position_params']:,}" if cost else "",
        f"{cost['extra_gmac'] * 1e3:.1f}" if cost else "",
    ]


def missing(folder: Path) -> list[str]:
    """Catalogue names that no page treats."""
    treated = {name for names in pages(folder).values() for name in names}
    return [name for name in CATALOGUE if name not in treated]
