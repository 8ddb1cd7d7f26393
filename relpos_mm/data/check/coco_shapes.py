"""Boxes and masks of COCO annotations: which ones the readers or pycocotools cannot use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_MIN_NUMBERS = 6  # a polygon of three points


Fault = tuple[str, str]  # rule and explanation

# mmdet's training reader skips what breaks these two rules; scores are wrong or stop with them.
SKIPPED_IN_TRAINING = ("coco-box-empty", "coco-polygon")


def box_fault(box: Any, width: int, height: int) -> Fault | None:
    """Says why a box `[x, y, w, h]` in px is none, or None.

    A box that has no size or misses the picture is skipped in training; in evaluation it counts and
    can never be matched.
    """
    if not isinstance(box, list) or len(box) != 4 or not all(is_number(side) for side in box):
        return "coco-box", "bbox is not [x, y, width, height] in finite numbers"
    x, y, w, h = box
    if w <= 0 or h <= 0:
        return "coco-box-empty", "bbox has no size"
    if x >= width or y >= height or x + w <= 0 or y + h <= 0:
        return "coco-box-empty", "bbox lies outside the picture"
    return None


def mask_fault(mask: Any, width: int, height: int) -> Fault | None:
    """Says why a `segmentation` cannot be used, or None.

    Three forms are known: polygons, uncompressed run lengths (a list) and compressed ones (text).
    """
    if isinstance(mask, list):
        return _polygons_fault(mask)
    if isinstance(mask, Mapping):
        fault = _run_length_fault(mask, width, height)
        return None if fault is None else ("coco-mask", fault)
    kind = type(mask).__name__
    return "coco-mask", f"segmentation is a {kind}, neither polygons nor run lengths"


def _polygons_fault(polygons: list[Any]) -> Fault | None:
    if not polygons:
        return "coco-mask", "segmentation is empty"
    for polygon in polygons:
        if not isinstance(polygon, list) or not all(is_number(value) for value in polygon):
            return "coco-mask", "a polygon is not a list of finite numbers"
    for count in map(len, polygons):
        if count < _MIN_NUMBERS:
            few = f"fewer than {_MIN_NUMBERS} (3 points)"
            return "coco-polygon", f"a polygon has {count} numbers, {few}"
        if count % 2:
            return "coco-polygon", f"a polygon has {count} numbers, an odd count"
    return None


def _run_length_fault(mask: Mapping[str, Any], width: int, height: int) -> str | None:
    size, counts = mask.get("size"), mask.get("counts")
    if size != [height, width]:
        return f"run lengths are for [height, width] = {size}, the picture is [{height}, {width}]"
    if isinstance(counts, str):
        counts = decode_counts(counts)
        if counts is None:
            return "compressed run lengths are damaged"
    if not isinstance(counts, list) or not all(is_whole(run) and run >= 0 for run in counts):
        return "counts are neither text nor a list of whole numbers from 0"
    if sum(counts) != width * height:
        return f"run lengths add up to {sum(counts)} px, the picture has {width * height}"
    return None


def decode_counts(text: str) -> list[int] | None:
    """Run lengths of COCO's compressed form, or None when it is damaged.

    pycocotools' own decoder trusts the text and reads past its end (`rleFrString` in maskApi.c):
    6 bits a character, offset 48, of which 5 carry the value and one says that more follow; from
    the third run on, differences to the run before the last.
    """
    runs: list[int] = []
    value = shift = 0
    for character in text:
        bits = ord(character) - 48
        if not 0 <= bits < 64:
            return None
        value |= (bits & 31) << shift
        shift += 5
        if not bits & 32:
            if bits & 16:
                value -= 1 << shift
            runs.append(value + runs[-2] if len(runs) > 2 else value)
            value = shift = 0
    return runs if shift == 0 and all(run >= 0 for run in runs) else None


def is_number(value: Any) -> bool:
    """Whether a json value is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def is_whole(value: Any) -> bool:
    """Whether a json value is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)
