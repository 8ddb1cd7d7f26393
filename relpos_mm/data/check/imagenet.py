"""A whole set in ImageNet's layout: class folders, the validation split, every picture."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from relpos_mm.data.check.finding import Finding, error, listed
from relpos_mm.data.check.imagenet_val import check_val_list
from relpos_mm.data.check.outcome import Options, Outcome, missing_layout
from relpos_mm.data.check.pictures import check_picture
from relpos_mm.data.check.work import check_all, spread_and_missing

_CLASSES, _TRAIN, _VAL = 1000, 1_281_167, 50_000
# What mmpretrain's ImageNet and CustomDataset take for a picture.
SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif")
_HOW = (
    "Unpack the tars so that there are train/<wnid>/*.JPEG and val/<wnid>/*.JPEG, or a flat val/ "
    "with meta/val.txt"
)


@dataclass(frozen=True)
class Folder:
    """What lies directly in one folder.

    Attributes:
        classes: Names of its sub-folders, sorted.
        loose: Number of pictures beside them.
    """

    classes: tuple[str, ...]
    loose: int


def is_picture(name: str) -> bool:
    """Whether mmpretrain reads a file of this name; hidden ones it does not."""
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def look_into(folder: Path) -> Folder:
    """Lists a folder without going deeper."""
    with os.scandir(folder) as entries:
        listing = [(entry.name, entry.is_dir()) for entry in entries]
    classes = tuple(sorted(name for name, is_folder in listing if is_folder))
    loose = sum(not deep and is_picture(name) for name, deep in listing)
    return Folder(classes, loose)


def check_imagenet(root: Path, options: Options, num_classes: int | None = None) -> Outcome:
    """Checks `root/train`, `root/val` and `root/meta/val.txt`.

    Args:
        root: The folder that a config calls `data_root`.
        options: How thorough.
        num_classes: Classes of the config's head; None means 1,000, or any number for a mini set.
    """
    layout = missing_layout(root, ("train", "val"), _HOW)
    if layout:
        return Outcome(layout)
    outcome = Outcome()
    train = look_into(root / "train")
    wanted = num_classes or (None if options.mini else _CLASSES)
    published = not options.mini and wanted == _CLASSES
    outcome.add(*class_count_fault(root / "train", train, wanted))
    outcome.counts["class folders in train"] = len(train.classes)
    pictures = _class_pictures(root / "train", outcome)
    outcome.expect("pictures", root / "train", len(pictures), _TRAIN if published else None)

    val = look_into(root / "val")
    val_pictures, findings = _val_pictures(root, train, val)
    outcome.add(*findings)
    outcome.expect("pictures", root / "val", len(val_pictures), _VAL if published else None)
    for what, paths in (("train", pictures), ("val", val_pictures)):
        opened = spread_and_missing(paths, options.limit, lambda path: path)
        for _, found in check_all(
            check_picture, opened, workers=options.workers, what=f"pictures of {what}"
        ):
            outcome.add(*found)
        outcome.counts[f"pictures of {what} decoded"] = len(opened)
    return outcome


def class_count_fault(place: Path, folder: Folder, wanted: int | None) -> Iterator[Finding]:
    """Says that the class folders in `place` are not as many as the model has classes."""
    if not folder.classes:
        value = f"no class folder; {folder.loose:,} pictures lie loose"
        yield error("class-folders", place, value, "Sort the pictures into one folder per class")
    elif wanted is not None and len(folder.classes) != wanted:
        value = (
            f"{len(folder.classes):,} class folders, the model has {wanted:,} classes; found "
            f"{listed(folder.classes, shown=5)}"
        )
        remedy = "Complete the folders, or set num_classes of the head and the class names to them"
        yield error("class-folders", place, value, remedy)


def _class_pictures(place: Path, outcome: Outcome) -> list[Path]:
    """All pictures in class folders; empty folders and other files are findings."""
    pictures: list[Path] = []
    empty: list[str] = []
    for name in look_into(place).classes:
        inside = [
            Path(here) / file
            for here, _, files in os.walk(place / name, followlinks=True)
            for file in sorted(files)
            if is_picture(file)
        ]
        pictures += inside
        if not inside:
            empty.append(name)
    if empty:
        value = f"class folders without a picture: {listed(empty)}"
        outcome.add(error("class-empty", place, value, f"Unpack them; known are {SUFFIXES}"))
    return pictures


def _val_pictures(root: Path, train: Folder, val: Folder) -> tuple[list[Path], list[Finding]]:
    place, val_list = root / "val", root / "meta" / "val.txt"
    if val_list.is_file():
        return check_val_list(root, val_list, train.classes)
    if val.classes:
        outcome = Outcome()
        pictures = _class_pictures(place, outcome)
        if val.classes != train.classes:
            differing = sorted(set(val.classes) ^ set(train.classes))
            value = f"its class folders are not those of train/: {listed(differing)} on one side"
            remedy = "Give both the same folders: classes are numbered by them"
            outcome.add(error("class-folders", place, value, remedy))
        return pictures, outcome.findings
    value = f"{val.loose:,} pictures lie flat and there is no {val_list.name} in {val_list.parent}"
    remedy = "Sort them into class folders, or write meta/val.txt: 'name class' on each line"
    return [], [error("val-flat", place, value, remedy)]
