"""Letters and textures from the shipped atlas, resized with integers."""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path

import numpy as np

#: Faces that only validation splits use; the other 16 only training.
VAL_FACES = (
    "DejaVuSansMono-Oblique",
    "DejaVuSerif-Bold",
    "STIXGeneralItalic",
    "cmb10",
    "cmss10",
    "cmtt10",
)


@lru_cache(maxsize=1)
def atlas() -> dict[str, np.ndarray]:
    """The arrays of `atlas.npz`; see make_atlas.py for what they hold."""
    with np.load(Path(__file__).with_name("atlas.npz")) as stored:
        return {name: stored[name] for name in stored.files}


@lru_cache(maxsize=2)
def faces(*, val: bool) -> tuple[int, ...]:
    """Numbers of the faces of the validation or of the training splits."""
    names = atlas()["faces"].tolist()
    missing = set(VAL_FACES) - set(names)
    assert not missing, f"atlas.npz lacks the faces {sorted(missing)}"
    return tuple(i for i, name in enumerate(names) if (name in VAL_FACES) == val)


@cache
def glyph(face: int, letter: str, size_px: int, bold_px: int = 0) -> np.ndarray:
    """Coverage of one letter, (h, w) uint8 of 255, cut to its own box.

    Args:
        face: Number of the face.
        letter: One of the atlas's letters.
        size_px: Height of the whole cell, so about the height of `b`.
        bold_px: How far every stroke grows on each side.
    """
    stored = atlas()
    cell = stored["glyphs"][face, stored["letters"].tolist().index(letter)]
    coverage = np.pad(_resize_area(cell, size_px), bold_px)
    for _ in range(bold_px):
        padded = np.pad(coverage, 1)
        sides = (padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:])
        coverage = np.maximum.reduce([coverage, *sides])
    rows, columns = np.flatnonzero(coverage.any(1)), np.flatnonzero(coverage.any(0))
    return coverage[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _resize_area(cell: np.ndarray, size: int) -> np.ndarray:
    """Mean over the area under each new pixel, up or down, exact in integers."""
    source = len(cell)
    low, high = np.arange(size) * source, np.arange(1, size + 1) * source
    start, stop = np.arange(source) * size, np.arange(1, source + 1) * size
    overlap = np.minimum(high[:, None], stop) - np.maximum(low[:, None], start)
    weights = np.maximum(overlap, 0)  # (size, source), each row sums to source
    summed = weights @ cell.astype(np.int64) @ weights.T
    return ((summed + source * source // 2) // (source * source)).astype(np.uint8)
