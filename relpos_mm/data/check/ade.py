"""A whole set in the layout of ADE20K's challenge release (150 classes)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from relpos_mm.data.check.finding import Finding, error, note
from relpos_mm.data.check.label_map import IGNORED, binary_fault, check_label_map
from relpos_mm.data.check.outcome import Options, Outcome, missing_layout
from relpos_mm.data.check.pairs import check_pairs
from relpos_mm.data.check.pictures import check_picture
from relpos_mm.data.check.work import check_all, spread

ADE_COUNTS = {"training": 20_210, "validation": 2_000}
_FOLDERS = [f"{kind}/{split}" for kind in ("images", "annotations") for split in ADE_COUNTS]
_RELEASE = "ADEChallengeData2016"
_NEEDED = (
    f"Needed is the challenge release of 150 classes, {_RELEASE}.zip, unpacked so that this folder "
    "holds images/ and annotations/ with training/ and validation/ in each"
)


@dataclass(frozen=True)
class LabelledSplit:
    """Pictures with label files of the same names.

    Attributes:
        pictures: Folder of pictures.
        labels: Folder of label files.
        num_classes: Classes of the model.
        reduce_zero: Whether 0 means unlabelled.
        img_suffix: How pictures end.
        label_suffix: How label files end.
        official: Number of pairs of the published split; None when any will do.
    """

    pictures: Path
    labels: Path
    num_classes: int = 150
    reduce_zero: bool = True
    img_suffix: str = ".jpg"
    label_suffix: str = ".png"
    official: int | None = None


def check_ade(root: Path, options: Options) -> Outcome:
    """Checks the challenge release of ADE20K in `root` (the folder `ADEChallengeData2016`)."""
    wrong = list(_other_release(root))
    if wrong:
        return Outcome(wrong)
    layout = missing_layout(root, _FOLDERS, _NEEDED)
    if layout:
        return Outcome(layout)
    splits = [
        LabelledSplit(
            root / "images" / name,
            root / "annotations" / name,
            official=None if options.mini else count,
        )
        for name, count in ADE_COUNTS.items()
    ]
    return check_label_maps(splits, options)


def check_label_maps(splits: Sequence[LabelledSplit], options: Options) -> Outcome:
    """Checks pairs of pictures and label files."""
    outcome = Outcome()
    for split in splits:
        names, findings = check_pairs(
            split.pictures, split.labels, split.img_suffix, split.label_suffix
        )
        outcome.add(*findings)
        outcome.expect("pairs", split.pictures, len(names), split.official)
        opened = spread(names, options.limit)
        done = check_all(
            partial(_check_pair, split),
            opened,
            workers=options.workers,
            what=f"pairs of {split.pictures.name}",
        )
        seen: set[int] = set()
        for values, found in done:
            outcome.add(*found)
            seen |= values
        outcome.counts[f"label values seen in {split.labels.name}"] = len(seen)
        outcome.add(*_value_faults(split, seen))
    return outcome


def _check_pair(split: LabelledSplit, name: str) -> tuple[set[int], list[Finding]]:
    size, findings = check_picture(split.pictures / (name + split.img_suffix))
    path = split.labels / (name + split.label_suffix)
    values, more = check_label_map(path, split.num_classes, split.reduce_zero, size)
    return values, findings + more


def _value_faults(split: LabelledSplit, seen: set[int]) -> Iterator[Finding]:
    """Judges all values of a split together.

    ADE20K holds 0 to 150 and never 255; after a reduction of zero it is 0 to 149 and 255.
    """
    if seen == {0, IGNORED}:
        yield binary_fault(split.labels, f"all its values are 0 and {IGNORED}")
    elif split.reduce_zero and {0, IGNORED} <= seen and split.num_classes not in seen:
        value = f"{IGNORED} occurs and {split.num_classes} does not: 0 may be dropped already"
        remedy = "If so set reduce_zero_label=False, or every class is shifted by one"
        yield note("label-reduced", split.labels, value, remedy)


def _other_release(root: Path) -> Iterator[Finding]:
    if (root / _RELEASE / "images").is_dir():
        yield error("ade-level", root, f"the set is one level deeper, in {_RELEASE}/",
                    f"Give {root / _RELEASE}, or set data_root to it")  # fmt: skip
    elif root.name in ("images", "annotations") and (root / "training").is_dir():
        yield error("ade-level", root, "this is a part of the set", f"Give {root.parent}")
    elif _is_full_release(root):
        value = "this is the full ADE20K (3,000 classes, *_seg.png), not the challenge release"
        yield error("ade-release", root, value, _NEEDED)


def _is_full_release(root: Path) -> bool:
    if any(root.glob("index_ade20k.*")) or any(root.glob("ADE20K_20*")):
        return True
    images = root / "images"
    places = [images / "ADE" / "training", images / "training"]
    for place in (place for place in places if place.is_dir()):
        first = next((path for path in place.iterdir() if path.is_dir()), None)
        if first is not None or any(place.glob("*_seg.png")):
            return True
    return False
