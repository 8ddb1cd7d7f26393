"""The table of docs/encodings.md that says which encodings padding cannot reach."""

from __future__ import annotations

import re
from pathlib import Path

from relpos_mm.analysis.catalogue import build
from relpos_mm.registry import POSITIONS


def rows(repo_root: Path) -> list[tuple[str, str, str]]:
    """Class, settings and declaration of every row."""
    text = (repo_root / "docs" / "encodings.md").read_text(encoding="utf-8")
    section = text.split("## Padded batches\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \| (?:`(.*)`)? ?\| (\w+) \|$", section, flags=re.MULTILINE)


def test_the_table_says_what_the_encodings_declare(repo_root: Path) -> None:
    table = rows(repo_root)
    for name, settings, padding in table:
        options = eval(f"dict({settings})")
        (encoding,) = build([{"type": name, **options}], grid=(7, 7), embed_dims=96, num_heads=3)
        assert encoding.padding == padding, (name, settings)
    shipped = {
        name
        for name, cls in POSITIONS.module_dict.items()
        if cls.__module__.startswith("relpos_mm.encodings.") and name != "ManhattanBias"
    }
    assert {name for name, _, _ in table} == shipped
