"""Tables in Markdown, and blocks of generated text inside hand-written pages."""

from __future__ import annotations

from collections.abc import Sequence

from relpos_mm.engine.errors import UserError


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an aligned table; columns of numbers are aligned right."""
    columns = list(zip(header, *rows, strict=True))
    widths = [max(3, *map(len, column)) for column in columns]
    right = [all(not c or c[0].isdigit() or c[0] in "+-" for c in col[1:]) for col in columns]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(cells, widths, right, strict=True)
        )
        return f"| {' | '.join(padded)} |"

    rule = ["-" * (width - 1) + (":" if r else "-") for width, r in zip(widths, right, strict=True)]
    return "\n".join([line(header), line(rule), *map(line, rows)])


def replace_block(text: str, name: str, content: str, where: str) -> str:
    """Return ``text`` with what stands between the markers ``NAME:begin`` and ``NAME:end`` renewed.

    Raises:
        UserError: The markers are missing.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, first, rest = text.partition(begin)
    _, last, after = rest.partition(end)
    if not first or not last:
        raise UserError(f"{where}: the markers {begin} and {end} are missing; put them back")
    return f"{before}{begin}\n{content}\n{end}{after}"
