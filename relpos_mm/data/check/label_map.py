"""One label file of segmentation: its form, its values, and the size of its picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from relpos_mm.data.check.finding import Finding, error, listed, note
from relpos_mm.data.check.pictures import Size

IGNORED = 255
_GREY = ("L", "P", "1")
_SIXTEEN_BITS = ("I", "I;16", "I;16B", "I;16L")


def check_label_map(
    path: Path, num_classes: int, reduce_zero: bool, size: Size | None = None
) -> tuple[set[int], list[Finding]]:
    """Reads a label file as the data set's loader will, before any reduction.

    Args:
        path: A PNG of class numbers.
        num_classes: Classes of the model.
        reduce_zero: Whether 0 means unlabelled and classes count from 1, as in ADE20K.
        size: (width, height) of its picture.

    Returns:
        The values that occur, and the findings.
    """
    try:
        with Image.open(path) as file:
            mode, found_size = file.mode, file.size
            if fault := form_fault(path, mode):
                return set(), [fault]
            values = set(np.flatnonzero(np.bincount(np.asarray(file).astype(np.uint8).ravel())))
    except FileNotFoundError:
        remedy = "Put it there, or remove its picture"
        return set(), [error("label-missing", path, "there is no such file", remedy)]
    except Exception as reason:  # decoders raise whatever they like on damaged bytes
        value = f"it cannot be decoded: {reason or type(reason).__name__}"
        return set(), [error("label-unreadable", path, value, "Replace it by an intact copy")]
    values = {int(value) for value in values}
    findings = []
    if size is not None and size != found_size:
        value = f"it is {found_size[0]} x {found_size[1]} px, its picture {size[0]} x {size[1]}"
        remedy = "Draw the labels on the picture as it is stored, without EXIF rotation"
        findings.append(error("label-size", path, value, remedy))
    if fault := value_fault(path, values, num_classes, reduce_zero):
        findings.append(fault)
    elif not values & set(_allowed(num_classes, reduce_zero)):
        value = "no pixel is labelled"
        findings.append(note("label-empty", path, value, "It teaches and scores nothing"))
    return values, findings


def form_fault(path: Path, mode: str) -> Finding | None:
    """Says why a picture's colour mode is none for class numbers, or None."""
    if mode in _GREY:
        return None
    if mode in _SIXTEEN_BITS:
        value = f"it has 16 bits a pixel (mode {mode}); a loader would keep the lower 8 alone"
        return error("label-16-bit", path, value, "Write class numbers as an 8-bit grey PNG")
    value = f"it is a colour picture (mode {mode}), not a map of class numbers"
    remedy = "Translate each colour to its class number and write an 8-bit grey or palette PNG"
    return error("label-colour", path, value, remedy)


def value_fault(
    path: Path, values: set[int], num_classes: int, reduce_zero: bool
) -> Finding | None:
    """Says which values of a label file (before any reduction) are no class, or None."""
    allowed = _allowed(num_classes, reduce_zero)
    shown = f"{allowed[0]} to {allowed[-1]}, {IGNORED} for 'ignored'"
    if reduce_zero:
        shown += ", 0 for 'unlabelled'"
    if reduce_zero and values == {0, IGNORED}:
        return binary_fault(path, f"its values are 0 and {IGNORED}; allowed are {shown}")
    bad = sorted(values - set(allowed) - {IGNORED} - ({0} if reduce_zero else set()))
    if bad:
        value = f"values {listed(bad)} are out of range; allowed are {shown}"
        remedy = "Correct the file, or num_classes and classes of the config"
        return error("label-range", path, value, remedy)
    return None


def binary_fault(place: Path, value: str) -> Finding:
    """The finding that masks are stored as 0 and 255, so that nothing but 0 can be learnt."""
    remedy = f"Write the class number instead of {IGNORED}, which means 'ignored'"
    return error("label-binary", place, f"{value} (a binary mask?)", remedy)


def _allowed(num_classes: int, reduce_zero: bool) -> range:
    return range(1, num_classes + 1) if reduce_zero else range(num_classes)
