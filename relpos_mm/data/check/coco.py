"""A whole set in COCO's layout: annotation files, folders and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relpos_mm.data.check.coco_json import check_coco_json, read_json
from relpos_mm.data.check.finding import Finding, error, note
from relpos_mm.data.check.outcome import Options, Outcome
from relpos_mm.data.check.pictures import Size, check_picture
from relpos_mm.data.check.work import check_all, spread_and_missing

COCO_COUNTS = {"train2017": 118_287, "val2017": 5_000}


@dataclass(frozen=True)
class CocoSplit:
    """One annotation file with the folder of its pictures.

    Attributes:
        json: The annotation file.
        pictures: The folder that `file_name` is relative to.
        classes: Class names that will be used, in order; None leaves them alone.
        masks: Whether masks will be read.
        official: Number of pictures of the published split; None when any will do.
    """

    json: Path
    pictures: Path
    classes: tuple[str, ...] | None = None
    masks: bool = True
    official: int | None = None


def published_splits(root: Path, mini: bool) -> list[CocoSplit]:
    """COCO 2017's train and val under `root`."""
    from mmdet.datasets import CocoDataset

    classes = None if mini else tuple(CocoDataset.METAINFO["classes"])
    return [
        CocoSplit(
            root / "annotations" / f"instances_{name}.json",
            root / name,
            classes,
            official=None if mini else count,
        )
        for name, count in COCO_COUNTS.items()
    ]


def check_coco(splits: Sequence[CocoSplit], options: Options) -> Outcome:
    """Checks annotation files with every picture they name."""
    outcome = Outcome()
    for split in splits:
        content, unreadable = read_json(split.json)
        outcome.add(*unreadable)
        if content is None:
            continue
        labelled = "annotations" in content
        if not labelled:
            value = "it has no 'annotations'"
            remedy = "It can be predicted on, not trained on or scored"
            outcome.add(note("coco-unlabelled", split.json, value, remedy))
        outcome.add(
            *check_coco_json(
                split.json, content, classes=split.classes, masks=split.masks, labelled=labelled
            )
        )
        images = content.get("images")
        images = images if isinstance(images, list) else []
        outcome.expect("images", split.json, len(images), split.official)
        _count_annotations(outcome, split.json, content)
        _check_pictures(outcome, split, images, options)
    return outcome


def _count_annotations(outcome: Outcome, path: Path, content: dict[str, Any]) -> None:
    annotations = content.get("annotations")
    if not isinstance(annotations, list):
        return
    outcome.counts[f"annotations in {path.name}"] = len(annotations)
    try:
        used = {one["image_id"] for one in annotations}
        empty = sum(1 for image in content["images"] if image["id"] not in used)
    except (TypeError, KeyError):
        return  # reported with the field's name
    outcome.counts[f"images without objects in {path.name}"] = empty


def _check_pictures(
    outcome: Outcome, split: CocoSplit, images: list[Any], options: Options
) -> None:
    if not split.pictures.is_dir():
        value = "there is no such folder"
        outcome.add(error("layout", split.pictures, value, f"Unpack the pictures of {split.json}"))
        return
    named = [i for i in images if isinstance(i, dict) and isinstance(i.get("file_name"), str)]
    items = [(split.pictures / i["file_name"], (i.get("width"), i.get("height"))) for i in named]
    opened = spread_and_missing(items, options.limit, lambda item: item[0])
    what = f"pictures of {split.pictures.name}"
    for findings in check_all(check_sized, opened, workers=options.workers, what=what):
        outcome.add(*findings)
    outcome.counts[f"{what} decoded"] = len(opened)
    there = {p.name for p in split.pictures.iterdir() if p.suffix.lower() in (".jpg", ".png")}
    extra = sorted(there - {path.name for path, _ in items})
    if extra:
        value = f"{len(extra):,} pictures that {split.json.name} does not name, first {extra[:3]}"
        outcome.add(note("coco-extra", split.pictures, value, "They are not read"))


def check_sized(item: tuple[Path, tuple[Any, Any]]) -> list[Finding]:
    """Decodes a picture and compares its size with the (width, height) that a json gives."""
    path, stated = item
    size, findings = check_picture(path)
    if size is not None and stated != size:
        findings.append(size_mismatch(path, size, stated))
    return findings


def size_mismatch(path: Path, size: Size, stated: tuple[Any, Any]) -> Finding:
    """The finding that a picture has another (width, height) than its annotations say."""
    (width, height), (w, h) = size, stated
    value = f"the picture is {width} x {height} px, its annotations say {w} x {h}"
    remedy = "Correct the json, or take the picture that was annotated"
    if stated == (height, width):
        remedy = (
            "Annotate the picture as it is stored, without its EXIF rotation, or store it turned "
            "and without the EXIF tag"
        )
    return error("picture-size", path, value, remedy)
