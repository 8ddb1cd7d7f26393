"""Rows of small pictures as one SVG: light, readable on any background, each picture in it once."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np
from PIL import Image

SIDE, GAP, LINE = 128, 6, 16
_MOST = 192  # pixels of a kept picture's longer side


@dataclass(frozen=True)
class Tile:
    """A picture with what is drawn on it.

    Attributes:
        uri: The picture as a ``data:`` URI.
        size: Width and height in the pixels that ``boxes`` are in.
        boxes: ``(x, y, width, height)`` and a name each.
        text: Lines below.
    """

    uri: str
    size: tuple[int, int]
    boxes: Sequence[tuple[Sequence[float], str]] = ()
    text: Sequence[str] = ()


def photo(path: Path) -> Tile:
    """Read a picture; it is kept small."""
    with Image.open(path) as image:
        size = image.size
        small = image.convert("RGB")
    small.thumbnail((_MOST, _MOST))
    return Tile(_uri(small, "JPEG", quality=85), size)


def label_map(labels: np.ndarray, palette: np.ndarray) -> Tile:
    """Colour a label map ``(H, W)``; labels without a colour are left clear."""
    colours = np.zeros((256, 4), np.uint8)
    colours[: len(palette)] = np.column_stack([palette, np.full(len(palette), 255, np.uint8)])
    image = Image.fromarray(colours[labels])
    image.thumbnail((_MOST, _MOST), Image.Resampling.NEAREST)
    return Tile(_uri(image, "PNG", optimize=True), (labels.shape[1], labels.shape[0]))


def _uri(image: Image.Image, form: str, **options: object) -> str:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    content = base64.b64encode(buffer.getvalue()).decode()
    return f"data:image/{form.lower()};base64,{content}"


def tiles_svg(
    rows: Mapping[str, Sequence[Tile]],
    colours: Mapping[str, str] | None = None,
    legend: Mapping[str, str] | None = None,
) -> str:
    """Draw one row of tiles under each title.

    Args:
        rows: Tiles by title.
        colours: Colour of the boxes by title.
        legend: Colour by name, drawn below all rows.
    """
    width = max(len(tiles) for tiles in rows.values()) * (SIDE + GAP) - GAP
    known: dict[str, int] = {}
    parts, top = [], 0
    for title, tiles in rows.items():
        top += LINE
        parts.append(_text(title, 0, top - 4, 12))
        for at, tile in enumerate(tiles):
            number = known.setdefault(tile.uri, len(known))
            colour = (colours or {}).get(title, "#f46d43")
            parts += _tile(tile, at * (SIDE + GAP), top, number, colour)
        top += SIDE + max(13 * len(tile.text) for tile in tiles) + GAP
    for at, (name, colour) in enumerate((legend or {}).items()):
        x, y = at % 4 * width // 4, top + at // 4 * LINE
        parts.append(f'<rect x="{x}" y="{y + 3}" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(name, x + 14, y + 12, 11))
    height = top + -(-len(legend or {}) // 4) * LINE
    pictures = (
        f'<image id="p{number}" width="100" height="100" preserveAspectRatio="none" href="{uri}"/>'
        for uri, number in known.items()
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="tiles" viewBox="0 0 {width} {height}">'
    return f"{head}<defs>{''.join(pictures)}</defs>{''.join(parts)}</svg>"


def _tile(tile: Tile, x: int, y: int, number: int, colour: str) -> list[str]:
    wide, high = tile.size
    scale = SIDE / max(wide, high)
    fit = f"translate({x} {y}) scale({scale * wide / 100:.4g} {scale * high / 100:.4g})"
    parts = [f'<use href="#p{number}" transform="{fit}" style="image-rendering:pixelated"/>']
    for (left, top, width, height), name in tile.boxes:
        place = [x + scale * left, y + scale * top, scale * width, scale * height]
        at = dict(zip(("x", "y", "width", "height"), (f"{v:.1f}" for v in place), strict=True))
        frame = " ".join(f'{key}="{value}"' for key, value in at.items())
        parts.append(f'<rect {frame} fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(_text(name, place[0] + 1, max(place[1] - 2, y + 9), 10, colour))
    below = y + scale * high
    parts += [_text(line, x, below + 12 + 13 * at, 11) for at, line in enumerate(tile.text)]
    return parts


def _text(text: str, x: float, y: float, size: int, colour: str = "currentColor") -> str:
    edge = (
        "" if colour == "currentColor" else ' stroke="#000" stroke-width="2" paint-order="stroke"'
    )
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-family="sans-serif"'
    return f'<text {place} fill="{colour}"{edge}>{escape(text)}</text>'
