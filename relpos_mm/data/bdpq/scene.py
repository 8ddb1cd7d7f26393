"""Pictures composed of a ground, clutter and letters, in integer arithmetic only."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from relpos_mm.data.bdpq.atlas import faces, glyph
from relpos_mm.data.bdpq.ground import draw_ground
from relpos_mm.data.bdpq.knobs import LETTERS, SEG_CLASSES, Knobs, Range
from relpos_mm.data.bdpq.stream import Stream

#: Ink at least this strong (of 255) belongs to a letter's mask.
MASK_COVERAGE = 96
_TRIES = 20


@dataclass
class Scene:
    """A finished picture with its truth.

    Attributes:
        picture: (S, S, 3) uint8, RGB.
        labels: (S, S) uint8, indices into SEG_CLASSES.
        letters: Class id and visible mask (S, S) bool of every letter, in painting order.
    """

    picture: np.ndarray
    labels: np.ndarray
    letters: list[tuple[int, np.ndarray]] = field(default_factory=list)


@dataclass(frozen=True)
class Split:
    """How the scenes of one split differ from those of the others."""

    number: int
    size_px: int
    val: bool = True
    zoom_pct: int = 100
    shifted: bool = False


def scene_splits(knobs: Knobs) -> dict[str, Split]:
    """The splits of the dense tasks. A number never changes: it is part of every picture's key."""
    return {
        "train": Split(0, knobs.scene_px, val=False),
        "val": Split(1, knobs.scene_px),
        "val_shift": Split(2, knobs.scene_px, shifted=True),
        "val_large": Split(3, knobs.large_px),
        "val_zoom": Split(4, knobs.scene_px, zoom_pct=knobs.zoom_pct),
    }


def compose_scene(knobs: Knobs, split: Split, seed: int, index: int) -> Scene:
    """Scene `index` of a split: a function of its arguments alone."""
    stream = Stream(seed, 1, split.number, index)
    canvas = _Canvas(stream, knobs, split.size_px, cuts=stream.between(1, 2), val=split.val)
    canvas.scatter_clutter(knobs.clutter, _zoomed(knobs.letter_px, split.zoom_pct))
    size = split.size_px
    low, high = 0, size * knobs.home_pct // 100
    if split.shifted:
        low, high = size - size * knobs.shifted_pct // 100, size
    for _ in range(stream.between(*knobs.letters)):
        letter = stream.below(len(LETTERS))
        for _ in range(_TRIES):
            shape = canvas.draw_letter(letter, _zoomed(knobs.letter_px, split.zoom_pct))
            height, width = shape.shape
            if width > high - low or height > size:
                continue
            x, y = stream.between(low, high - width), stream.between(0, size - height)
            if canvas.place(letter, shape, x, y):
                break
    return canvas.finish()


def compose_portrait(knobs: Knobs, *, val: bool, seed: int, index: int) -> Scene:
    """Classification picture `index`: one letter near the centre; its class is index modulo 8."""
    stream = Stream(seed, 0, int(val), index)
    canvas = _Canvas(stream, knobs, knobs.cls_px, cuts=1, val=val)
    canvas.scatter_clutter(knobs.cls_clutter, knobs.cls_letter_px)
    letter = index % len(LETTERS)
    shape = canvas.draw_letter(letter, knobs.cls_letter_px)
    corner = []
    for extent in reversed(shape.shape):
        room = knobs.cls_px - extent
        corner.append(min(max(room // 2 + stream.bell(knobs.centre_sigma_px), 0), max(room, 0)))
    canvas.place(letter, shape[: knobs.cls_px, : knobs.cls_px], *corner)
    return canvas.finish()


def _zoomed(size_px: Range, zoom_pct: int) -> Range:
    return size_px[0] * zoom_pct // 100, size_px[1] * zoom_pct // 100


class _Canvas:
    """A ground on which ink adds up; later letters cover earlier ones."""

    def __init__(self, stream: Stream, knobs: Knobs, size_px: int, *, cuts: int, val: bool) -> None:
        self.stream, self.knobs, self.size_px, self.val = stream, knobs, size_px, val
        self.ground, self.labels = draw_ground(
            stream, size_px, cuts, contrast_pct=knobs.ground_pct, layout_pct=knobs.layout_pct
        )
        self.ink = np.zeros_like(self.ground)
        self.letters: list[tuple[int, np.ndarray]] = []
        self._whole: list[int] = []  # pixels of each letter before anything covered it

    def draw_letter(self, letter: int, size_px: Range) -> np.ndarray:
        """Coverage (h, w) uint8 of a letter in a face, size and slant drawn from the stream."""
        stream = self.stream
        face, size = stream.pick(faces(val=self.val)), stream.between(*size_px)
        shape = glyph(face, LETTERS[letter], size, self.knobs.bold_px)
        lean = len(shape) * self.knobs.slant_pct // 100
        return _shear(shape, stream.between(-lean, lean))

    def scatter_clutter(self, count: Range, size_px: Range) -> None:
        """Paints pieces of letters anywhere: strokes that make no letter."""
        stream = self.stream
        for _ in range(stream.between(*count)):
            shape = self.draw_letter(stream.below(len(LETTERS)), size_px)
            axis = stream.below(2)
            third = -(-shape.shape[axis] // 3)
            start = stream.below(shape.shape[axis] - third + 1)
            piece = np.take(shape, np.arange(start, start + third), axis)
            height, width = piece.shape
            x, y = (stream.between(0, max(self.size_px - extent, 0)) for extent in (width, height))
            self._paint(piece[: self.size_px, : self.size_px], x, y)

    def place(self, letter: int, shape: np.ndarray, x: int, y: int) -> bool:
        """Paints a letter with its upper left corner at (x, y).

        Refuses, and paints nothing, when an earlier letter would be less than half visible.
        """
        mask = np.zeros((self.size_px, self.size_px), bool)
        mask[y : y + shape.shape[0], x : x + shape.shape[1]] = shape >= MASK_COVERAGE
        visible = [(other, earlier & ~mask) for other, earlier in self.letters]
        if any(
            2 * int(m.sum()) < whole for (_, m), whole in zip(visible, self._whole, strict=True)
        ):
            return False
        self.letters = [*visible, (letter, mask)]
        self._whole.append(int(mask.sum()))
        self._paint(shape, x, y)
        return True

    def finish(self) -> Scene:
        """Adds ink and noise to the ground and the letters to the label map."""
        noise = self.stream.grid(self.ground.shape, 2 * self.knobs.noise + 1) - self.knobs.noise
        picture = np.clip(self.ground + self.ink + noise, 0, 255).astype(np.uint8)
        for letter, mask in self.letters:
            self.labels[mask] = SEG_CLASSES.index(LETTERS[letter])
        return Scene(picture, self.labels, self.letters)

    def _paint(self, shape: np.ndarray, x: int, y: int) -> None:
        contrast = self.stream.between(*self.knobs.contrast)
        colour = np.array([contrast + self.stream.between(-15, 15) for _ in range(3)])
        area = self.ink[y : y + shape.shape[0], x : x + shape.shape[1]]
        coverage = shape.astype(np.int64)[:, :, None]
        area[:] = (area * (255 - coverage) + colour * coverage) // 255


def _shear(shape: np.ndarray, lean: int) -> np.ndarray:
    """Moves rows sideways, the first and the last by `lean` pixels against each other."""
    if lean == 0:
        return shape
    height, width = shape.shape
    moved = np.zeros((height, width + abs(lean)), np.uint8)
    for row in range(height):
        step = abs(lean) * row // max(height - 1, 1)
        start = step if lean > 0 else abs(lean) - step
        moved[row, start : start + width] = shape[row]
    return moved
