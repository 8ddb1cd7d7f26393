"""Whether the rows of a bias table tell the window that it was trained with."""

from __future__ import annotations

from math import isqrt

from relpos_mm.encodings.buckets import table_rows
from relpos_mm.encodings.grid import Size


def possible_windows(rows: int, least: int = 2) -> list[Size]:
    """Windows whose tables have so many rows and whose sides have at least ``least`` tokens."""
    sides = range(2 * least - 1, rows // (2 * least - 1) + 1, 2)
    return [
        ((height + 1) // 2, (rows // height + 1) // 2)
        for height in sides
        if rows % height == 0 and (rows // height) % 2
    ]


def window_doubt(rows: int, own: Size) -> str:
    """Why the window of a table cannot be told from its rows; empty where it can.

    Tables are taken to be of square windows where the model's window is square, too.

    Args:
        rows: Rows of the file's table.
        own: Window of the model.
    """
    found = possible_windows(rows, min(2, *own))
    side = isqrt(rows)
    square = side * side == rows and side % 2 == 1
    if square and (own[0] == own[1] or len(found) == 1):
        return ""
    told = " or ".join(f"{height}x{width}" for height, width in found[:4]) or "no window"
    return f"{rows} rows are those of {told}"


def misread(rows: int, own: Size, stated: Size | None) -> str:
    """Why plain loading, which knows rows alone, would misread a table; empty where it would not.

    Args:
        rows: Rows of the file's table.
        own: Window of the model.
        stated: Window that the file states.
    """
    if stated is None or table_rows(stated) != rows:
        # smaller tables of a small map, or a file that states nothing
        return "" if stated is not None else window_doubt(rows, own)
    square = stated[0] == stated[1]
    if stated == own or (square and rows != table_rows(own)):
        return ""
    return f"its window is {stated[0]}x{stated[1]}, this config's {own[0]}x{own[1]}"
