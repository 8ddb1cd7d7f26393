"""What lies behind the letters: regions of photographed texture and of weave."""

from __future__ import annotations

import numpy as np

from relpos_mm.data.bdpq.atlas import atlas
from relpos_mm.data.bdpq.knobs import LAYOUT, SEG_CLASSES, TEXTURES
from relpos_mm.data.bdpq.stream import Stream

_GREY = 120  # about the mean of every texture
_WEAVE = len(TEXTURES)
_ABOVE, _BELOW = (SEG_CLASSES.index(name) for name in LAYOUT)


def draw_ground(
    stream: Stream, size_px: int, cuts: int, *, contrast_pct: int, layout_pct: int
) -> tuple[np.ndarray, np.ndarray]:
    """A picture cut by straight lines into regions, each of one tinted texture.

    Args:
        stream: Source of every choice.
        size_px: Side of the square picture.
        cuts: Number of lines.
        contrast_pct: See `Knobs.ground_pct`.
        layout_pct: See `Knobs.layout_pct`.

    Returns:
        The picture (S, S, 3) int64 within 0..255 and its label map (S, S) uint8.
    """
    rows, columns = np.mgrid[:size_px, :size_px]
    region = np.zeros((size_px, size_px), np.int64)
    for cut in range(cuts):
        across, down = stream.between(-16, 16), stream.between(1, 16)
        x, y = stream.below(size_px), stream.below(size_px)
        region += (across * (columns - x) + down * (rows - y) > 0).astype(np.int64) << cut
    picture = np.zeros((size_px, size_px, 3), np.int64)
    labels = np.zeros((size_px, size_px), np.uint8)
    for number in range(1 << cuts):
        inside = region == number
        kind = stream.below(len(TEXTURES) + 1)
        grey = _weave(stream, size_px) if kind == _WEAVE else _photograph(stream, kind, size_px)
        grey = _GREY + (grey - _GREY) * contrast_pct // 100
        tint = np.array([stream.between(64, 128) for _ in range(3)])
        picture[inside] = (grey[inside][:, None] * tint) >> 7
        if kind == _WEAVE:
            upside_down = stream.below(200) < 100 - layout_pct
            is_above = (rows < size_px // 2) != upside_down
            labels[inside] = np.where(is_above, _ABOVE, _BELOW)[inside]
        else:
            labels[inside] = kind
    return picture, labels


def _photograph(stream: Stream, kind: int, size_px: int) -> np.ndarray:
    """A window of the stored crop, turned, mirrored and continued beyond its border."""
    texture = np.rot90(atlas()["textures"][kind], stream.below(4))
    if stream.percent(50):
        texture = texture[:, ::-1]
    side = len(texture)
    rows = (stream.below(side) + np.arange(size_px)) % side
    columns = (stream.below(side) + np.arange(size_px)) % side
    return texture[np.ix_(rows, columns)].astype(np.int64)


def _weave(stream: Stream, size_px: int) -> np.ndarray:
    """Strands over and under each other: the layout texture, the same for both of its labels."""
    strand = stream.between(5, 8)
    rows, columns = np.mgrid[:size_px, :size_px] + stream.below(64)
    lengthwise = (rows // strand + columns // strand) % 2 == 0
    across = np.where(lengthwise, rows % strand, columns % strand)
    return 140 - 90 * np.abs(2 * across - strand + 1) // strand
