"""Small pictures for reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image


def contact_sheet(
    pictures: Sequence[str | Path],
    out: str | Path,
    *,
    columns: int,
    width_px: int = 512,
    gap_px: int = 8,
) -> None:
    """Lay pictures out row by row, each scaled to ``width_px``, and save them as one file.

    Raises:
        ValueError: There are no pictures.
    """
    if not pictures:
        raise ValueError(f"no pictures to lay out for {out}")
    tiles = []
    for path in pictures:
        with Image.open(path) as picture:
            height_px = round(picture.height * width_px / picture.width)
            tiles.append(picture.convert("RGB").resize((width_px, height_px)))
    columns = min(columns, len(tiles))
    rows = [tiles[first : first + columns] for first in range(0, len(tiles), columns)]
    heights = [max(tile.height for tile in row) + gap_px for row in rows]
    sheet = Image.new(
        "RGB", (columns * (width_px + gap_px) - gap_px, sum(heights) - gap_px), "white"
    )
    for i, row in enumerate(rows):
        for j, tile in enumerate(row):
            sheet.paste(tile, (j * (width_px + gap_px), sum(heights[:i])))
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    sheet.save(out)
