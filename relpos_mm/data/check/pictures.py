"""One picture file: can it be decoded whole, and how will the readers take it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from relpos_mm.data.check.finding import Finding, error, note

Size = tuple[int, int]

SUFFIXES = {
    "JPEG": {".jpg", ".jpeg", ".jpe"},
    "MPO": {".jpg", ".jpeg", ".mpo"},  # JPEG of some cameras, with a second picture behind it
    "PNG": {".png"},
    "GIF": {".gif"},
    "BMP": {".bmp"},
    "TIFF": {".tif", ".tiff"},
    "WEBP": {".webp"},
    "PPM": {".ppm", ".pgm", ".pbm"},
}
_ORIENTATION = 0x0112
_ANOTHER_COPY = "Replace the file by an intact copy, or remove it together with its annotations"
_MODES = {
    "CMYK": "it is converted to RGB when read",
    "RGBA": "transparency is dropped: the stored colour of each pixel counts",
    "LA": "transparency is dropped: the stored colour of each pixel counts",
    "PA": "transparency is dropped: the stored colour of each pixel counts",
    "I": "the upper 8 of its 16 bits are read",
    "I;16": "the upper 8 of its 16 bits are read",
    "I;16B": "the upper 8 of its 16 bits are read",
    "F": "it holds floating-point numbers; write it as 8-bit RGB",
}


def check_picture(path: Path) -> tuple[Size | None, list[Finding]]:
    """Decodes a file completely.

    Returns:
        (width, height) on the raw grid (before any EXIF rotation), None when it cannot be decoded,
        and the findings.
    """
    try:
        if path.stat().st_size == 0:
            return None, [error("picture-empty", path, "the file has 0 bytes", _ANOTHER_COPY)]
        with warnings.catch_warnings():  # damaged EXIF blocks are common, and nothing reads them
            warnings.simplefilter("ignore")
            return _decode(path)
    except FileNotFoundError:
        remedy = "Put it there, or remove its annotations"
        return None, [error("picture-missing", path, "there is no such file", remedy)]
    except UnidentifiedImageError:
        return None, [error("picture-unreadable", path, _what_it_is(path), _ANOTHER_COPY)]
    except Exception as reason:  # decoders raise whatever they like on damaged bytes
        value = f"it cannot be decoded: {reason or type(reason).__name__}"
        return None, [error("picture-truncated", path, value, _ANOTHER_COPY)]


def _decode(path: Path) -> tuple[Size, list[Finding]]:
    with Image.open(path) as picture:
        size, mode, kind = picture.size, picture.mode, str(picture.format)
        frames = getattr(picture, "n_frames", 1)
        turned = picture.getexif().get(_ORIENTATION, 1)
        if kind == "JPEG":  # reads every byte, but computes an eighth of the pixels
            picture.draft(None, (max(size[0] // 8, 1), max(size[1] // 8, 1)))
        picture.load()
    return size, list(_notes(path, kind, mode, turned, 1 if kind == "MPO" else frames))


def _notes(path: Path, kind: str, mode: str, turned: int, frames: int) -> Iterator[Finding]:
    suffix = path.suffix.lower()
    if kind in SUFFIXES and suffix not in SUFFIXES[kind]:
        value = f"it is called {path.suffix or 'nothing'} but holds {kind}"
        yield note("picture-suffix", path, value, "Readers go by the content; rename it if you can")
    if turned in range(2, 9):
        yield note(
            "picture-exif",
            path,
            f"EXIF orientation {turned}",
            "It is read as stored, not turned; see that its labels were drawn on the stored grid",
        )
    if mode in _MODES:
        yield note("picture-mode", path, f"colour mode {mode}", _sentence(_MODES[mode]))
    if frames > 1:
        yield note("picture-frames", path, f"{frames} frames", "The first one is read")


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _what_it_is(path: Path) -> str:
    start = path.read_bytes()[:64].lstrip().lower()
    if start.startswith((b"<!doctype", b"<html")):
        return "it is a web page, not a picture (a failed download)"
    if start.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer, not the picture"
    return f"it is no picture (starts with {start[:12]!r})"
