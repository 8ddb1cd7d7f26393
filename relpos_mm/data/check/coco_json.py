"""An annotation file in COCO's format: entries, ids, fields, boxes, masks and class names."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from relpos_mm.data.check.coco_classes import check_class_names
from relpos_mm.data.check.coco_shapes import Fault, box_fault, is_number, is_whole, mask_fault
from relpos_mm.data.check.finding import Finding, error, listed, note

Entry = dict[str, Any]

# COCO's own train2017 has 2 boxes without height or width among 860,001.
_RARE = 1e-4


def read_json(path: Path) -> tuple[Entry | None, list[Finding]]:
    """Reads a json object; anything else is a finding."""
    remedy = "Write it again, or unpack it anew"
    try:
        # pycocotools reads UTF-8 and refuses a byte-order mark
        content = json.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        return None, [error("json-missing", path, "there is no such file", "Put it there")]
    except (OSError, ValueError, RecursionError) as reason:
        return None, [error("json-unreadable", path, f"it is no valid json ({reason})", remedy)]
    if not isinstance(content, dict):
        value = f"it holds a {type(content).__name__} at the top, not an object"
        return None, [error("json-unreadable", path, value, "Write a COCO file: images, ...")]
    return content, []


def check_coco_json(
    path: Path,
    content: Mapping[str, Any],
    *,
    classes: Sequence[str] | None = None,
    masks: bool = True,
    labelled: bool = True,
) -> list[Finding]:
    """Checks a parsed annotation file.

    Args:
        path: For the messages.
        content: What the file holds.
        classes: Class names of the config, in its order; None leaves the names alone.
        masks: Whether `segmentation` will be read.
        labelled: Whether annotations are needed at all (not for the pictures of a test server).
    """
    lists = {}
    for key in ("images", "categories", *(["annotations"] if labelled else [])):
        value = content.get(key)
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            what = "there is none" if key not in content else "it is not a list of objects"
            return [error(f"coco-{key}", path, f"'{key}': {what}", "Write it as COCO does")]
        lists[key] = value
    images, categories = lists["images"], lists["categories"]
    annotations = lists.get("annotations", [])
    found = [
        *_check_images(path, images),
        *_check_categories(path, categories),
        *check_class_names(path, categories, classes),
        *_check_ids(path, annotations),
        *_check_fields(path, annotations, masks),
        *_check_references(path, annotations, images, categories),
        *_check_shapes(path, annotations, images, masks),
    ]
    if labelled:
        found += _check_use(path, annotations)
    return found


def _check_images(path: Path, images: list[Entry]) -> Iterator[Finding]:
    if not images:
        yield error("coco-images", path, "0 images", "Take the file of the right split")
    wanted: dict[str, Callable[[Any], bool]] = {
        "id": is_whole,
        "file_name": lambda name: isinstance(name, str) and bool(name),
        "width": lambda size: is_whole(size) and size > 0,
        "height": lambda size: is_whole(size) and size > 0,
    }
    for field, fits in wanted.items():
        bad = [i for i, image in enumerate(images) if not fits(image.get(field))]
        if bad:
            value = f"'{field}' is missing or wrong in images number {listed(bad)} (from 0)"
            yield error(f"coco-image-{field}", path, value, "Write it for every image")
    names: dict[Any, list[str]] = defaultdict(list)
    for image in images:
        if is_whole(image.get("id")):
            names[image["id"]].append(str(image.get("file_name")))
    twice = [f"{i} ({', '.join(same[:3])})" for i, same in names.items() if len(same) > 1]
    if twice:
        value = f"image ids that stand twice: {listed(twice)}"
        yield error("coco-image-id-twice", path, value, "Give every image an id of its own")
    files = Counter(i["file_name"] for i in images if isinstance(i.get("file_name"), str))
    again = [name for name, times in files.items() if times > 1]
    if again:
        value = f"files listed more than once: {listed(again)}"
        yield note("coco-file-twice", path, value, "They count twice; merge their annotations")


def _check_categories(path: Path, categories: list[Entry]) -> Iterator[Finding]:
    bad = [c for c in categories if not is_whole(c.get("id")) or not isinstance(c.get("name"), str)]
    if bad:
        value = f"categories without a whole 'id' and a 'name': {listed(bad)}"
        yield error("coco-category", path, value, "Write both for every category")
    for field in ("id", "name"):
        times = Counter(str(category.get(field)) for category in categories)
        twice = [value for value, count in times.items() if count > 1]
        if twice:
            value = f"categories of one {field}: {listed(twice)}"
            yield error("coco-category-twice", path, value, "Let every class stand once")


def _check_ids(path: Path, annotations: list[Entry]) -> Iterator[Finding]:
    bad = [i for i, one in enumerate(annotations) if not is_whole(one.get("id"))]
    if bad:
        value = f"'id' is missing or no whole number in annotations number {listed(bad)} (from 0)"
        yield error("coco-id", path, value, "Number them from 1")
    ids = Counter(one["id"] for one in annotations if is_whole(one.get("id")))
    if 0 in ids:
        value = "annotation id 0: pycocotools takes 0 for 'no match', so it is never found"
        yield error("coco-id-zero", path, value, "Number annotations from 1")
    twice = [i for i, count in ids.items() if count > 1]
    if twice:
        value = f"annotation ids that stand twice: {listed(twice)}; only the last one would count"
        yield error("coco-id-twice", path, value, "Give every annotation an id of its own")


def _check_fields(path: Path, annotations: list[Entry], masks: bool) -> Iterator[Finding]:
    wanted: list[tuple[str, Callable[[Any], bool], str]] = [
        ("area", is_number, "Write the mask's area in px, or width x height of the box"),
        ("iscrowd", lambda value: value in (0, 1), "Write 0, or 1 for a region of many objects"),
        ("bbox", lambda value: value is not None, "Write [x, y, width, height]"),
        ("image_id", is_whole, "Write the id of its image"),
        ("category_id", is_whole, "Write the id of its category"),
    ]
    if masks:
        remedy = "Write it, or train and evaluate boxes only (with_mask=False, metric='bbox')"
        wanted.append(("segmentation", lambda value: value is not None, remedy))
    for field, fits, remedy in wanted:
        bad = [one.get("id") for one in annotations if not fits(one.get(field))]
        if bad:
            value = f"'{field}' is missing or wrong in annotations {listed(bad)}"
            yield error(f"coco-{field}", path, value, remedy)


def _check_references(
    path: Path, annotations: list[Entry], images: list[Entry], categories: list[Entry]
) -> Iterator[Finding]:
    for field, entries in (("image_id", images), ("category_id", categories)):
        known = {entry["id"] for entry in entries if is_whole(entry.get("id"))}
        bad = [
            f"{one.get('id')} ({field} {one[field]})"
            for one in annotations
            if is_whole(one.get(field)) and one[field] not in known
        ]
        if bad:
            value = f"annotations of none of the file's entries: {listed(bad)}"
            yield error(f"coco-{field}-unknown", path, value, "Correct the id, or remove them")


def _check_shapes(
    path: Path, annotations: list[Entry], images: list[Entry], masks: bool
) -> Iterator[Finding]:
    sizes = {
        image["id"]: (image["width"], image["height"])
        for image in images
        if all(is_whole(image.get(field)) for field in ("id", "width", "height"))
    }
    faults: dict[Fault, list[Any]] = defaultdict(list)
    for one in annotations:
        image_id = one.get("image_id")
        size = sizes.get(image_id) if is_whole(image_id) else None
        if size is None:
            continue  # reported above
        if one.get("bbox") is not None and (fault := box_fault(one["bbox"], *size)):
            faults[fault].append(one.get("id"))
        elif is_number(one.get("area")) and one["area"] <= 0:
            faults["coco-box-empty", "area is not above 0"].append(one.get("id"))
        if masks and one.get("segmentation") is not None:
            fault = mask_fault(one["segmentation"], *size)
            if fault:
                faults[fault].append(one.get("id"))
    for (rule, what), ids in faults.items():
        rare = rule == "coco-box-empty" and len(ids) < _RARE * len(annotations)
        make = note if rare else error
        value = f"{what}: annotations {listed(ids)}"
        remedy = "So few do no harm" if rare else "Correct or remove these annotations"
        yield make(rule, str(path), value, remedy)


def _check_use(path: Path, annotations: list[Entry]) -> Iterator[Finding]:
    if not annotations:
        value = "0 annotations: there is nothing to learn and nothing to score"
        yield error("coco-no-objects", path, value, "Take the file of the right split")
    elif all(one.get("iscrowd") == 1 for one in annotations):
        value = f"all {len(annotations):,} annotations are crowd regions, which are never scored"
        yield error("coco-all-crowd", path, value, "Set iscrowd to 0 for single objects")
