"""What can be said of a COCO annotation file, and of what a loader leaves of it, in seconds."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mmengine.config import Config

from relpos_mm.data.check.coco import CocoSplit
from relpos_mm.data.check.coco_json import check_coco_json, read_json
from relpos_mm.data.check.coco_shapes import SKIPPED_IN_TRAINING
from relpos_mm.data.check.finding import Finding, error, errors_of, listed, note
from relpos_mm.data.check.from_config import evaluators


def check_coco_start(
    cfg: Config, part: str, dataset: Mapping[str, Any], split: CocoSplit
) -> Iterator[Finding]:
    """Checks the annotation file, counts what the filters leave, and looks for every picture.

    Args:
        cfg: The config.
        part: "train", "val" or "test".
        dataset: The data set in it.
        split: The same as paths and class names.
    """
    content, unreadable = read_json(split.json)
    yield from unreadable
    if content is None:
        return
    training = part == "train"
    judges = [] if training else evaluators(cfg, part)
    labelled = training or not all(judge.get("format_only") for judge in judges)
    if labelled and not training:  # masks are read by the evaluator, not by the loader
        wanted = [kind for judge in judges for kind in _as_list(judge.get("metric", "bbox"))]
        split = replace(split, masks="segm" in wanted)
    found = check_coco_json(
        split.json, content, classes=split.classes, masks=split.masks, labelled=labelled
    )
    for finding in found:
        if training and finding.rule in SKIPPED_IN_TRAINING:
            value = f"left out of training: {finding.value}"
            finding = note(finding.rule, finding.file, value, finding.remedy)
        yield finding
    if errors_of(f for f in found if f.rule not in SKIPPED_IN_TRAINING):
        return  # the counts below rely on whole entries
    if training:
        yield from _filtered(split, content, dataset.get("filter_cfg") or {})
    yield from _missing_pictures(split, content["images"])


def _filtered(
    split: CocoSplit, content: dict[str, Any], filters: Mapping[str, Any]
) -> Iterator[Finding]:
    """Counts the pictures that mmdet's `filter_cfg` removes; removing all of them is an error."""
    names = {category["id"]: category["name"] for category in content["categories"]}
    used = {
        one["image_id"]
        for one in content["annotations"]
        if split.classes is None or names[one["category_id"]] in split.classes
    }
    smallest = filters.get("min_size", 0)
    removed: Counter[str] = Counter()
    for image in content["images"]:
        if filters.get("filter_empty_gt") and image["id"] not in used:
            removed["without an object of these classes (filter_empty_gt)"] += 1
        elif min(image["width"], image["height"]) < smallest:
            removed[f"smaller than {smallest} px (min_size)"] += 1
    if not removed:
        return
    total, left = len(content["images"]), len(content["images"]) - removed.total()
    counts = ", ".join(f"{count:,} {why}" for why, count in removed.items())
    value = f"of {total:,} images {left:,} are left for training; removed: {counts}"
    if left:
        yield note("coco-filtered", split.json, value, "Change filter_cfg if that is not meant")
    else:
        yield error("coco-filtered", split.json, value, "Change filter_cfg, classes, or the file")


def _missing_pictures(split: CocoSplit, images: list[dict[str, Any]]) -> Iterator[Finding]:
    listings: dict[Path, set[str]] = {}
    missing = []
    for image in images:
        path = split.pictures / image["file_name"]
        if path.parent not in listings:
            listings[path.parent] = set(os.listdir(path.parent)) if path.parent.is_dir() else set()
        if path.name not in listings[path.parent]:
            missing.append(path)
    if missing:
        value = f"{len(missing):,} of {len(images):,} pictures are missing, first: "
        value += listed(missing[:1])
        remedy = f"Put them in {split.pictures}, or correct data_prefix or file_name"
        yield error("coco-pictures", split.json, value, remedy)


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
