"""The list of a flat validation folder: are its numbers those of the sorted class folders?

mmpretrain numbers classes by the sorted names of their folders. ImageNet's development kit numbers
them otherwise (ILSVRC2012_ID, from 1), and a list in that order scores about 0.1% with a good
model. The order cannot be seen in a list of numbers alone, so there must be a proof of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from relpos_mm.data.check.finding import Finding, error, listed

# Classes of ILSVRC2012_val_00000001.JPEG and the next ones, by sorted folder name (the val.txt
# that Caffe published) and in the development kit's ILSVRC2012_validation_ground_truth.txt.
_SORTED_ORDER = (65, 970, 230, 809, 516, 57)
_DEVKIT_ORDER = (490, 361, 171, 822, 297, 482)
_NAME = "ILSVRC2012_val_{:08d}.JPEG"
UNPROVED = "val-order-unproved"
_MAPS = ("synsets.txt", "synset_words.txt", "LOC_synset_mapping.txt", "classes.txt")
_OFFICIAL_CLASSES = 1000


def check_val_list(
    root: Path, val_list: Path, classes: Sequence[str]
) -> tuple[list[Path], list[Finding]]:
    """Checks `meta/val.txt` against the pictures of `root/val` and the sorted class folders.

    Returns:
        The pictures that it names, and the findings.
    """
    lines = val_list.read_text(errors="replace").splitlines()
    rows = [line.strip().rsplit(" ", 1) for line in lines]
    bad = [i for i, row in enumerate(rows, 1) if len(row) != 2 or not _is_class(row[1])]
    if bad or not rows:
        value = f"lines {listed(bad)} are not 'name number'" if rows else "it is empty"
        remedy = "Write 'name number', numbers from 0 in the order of the sorted class folders"
        return [], [error("val-list", val_list, value, remedy)]
    numbers = {name: int(number) for name, number in rows}
    findings = [
        *_range_fault(val_list, numbers, len(classes)),
        *_order_fault(root, val_list, numbers, classes),
        *_name_faults(root / "val", val_list, rows),
    ]
    return [root / "val" / name for name, _ in rows], findings


def _is_class(text: str) -> bool:
    return text.isdecimal() and len(text) < 10  # int() refuses thousands of digits


def _range_fault(val_list: Path, numbers: dict[str, int], count: int) -> Iterator[Finding]:
    lowest, highest = min(numbers.values()), max(numbers.values())
    if highest >= count:
        value = f"numbers run from {lowest} to {highest}, but {count} classes are 0 to {count - 1}"
        remedy = "Count from 0"
        if highest == count and lowest > 0:
            remedy += "; a list that starts at 1 is often in the development kit's order, too"
        yield error("val-range", val_list, value, remedy)


def _order_fault(
    root: Path, val_list: Path, numbers: dict[str, int], classes: Sequence[str]
) -> Iterator[Finding]:
    if len(classes) == _OFFICIAL_CLASSES:
        first = [numbers.get(_NAME.format(i)) for i in range(1, len(_SORTED_ORDER) + 1)]
        if first == list(_SORTED_ORDER):
            return
        if first in (list(_DEVKIT_ORDER), [n - 1 for n in _DEVKIT_ORDER]):
            value = f"it is in the development kit's order (starts with {listed(first)})"
            remedy = f"Number classes by sorted folder name (starts with {listed(_SORTED_ORDER)})"
            yield error("val-order", val_list, value, remedy)
            return
    if all("/" in name for name in numbers):
        yield from _folder_fault(val_list, numbers, classes)
        return
    proof = next((p for n in _MAPS if (p := val_list.parent / n).is_file()), None)
    if proof is None:
        value = f"nothing says which class each of its {len(set(numbers.values()))} numbers is"
        remedy = (
            f"Put {_MAPS[0]} beside it, with the class folder of number 0 on line 1 and so on "
            "(it must be the sorted order), or sort the pictures into class folders"
        )
        yield error(UNPROVED, val_list, value, remedy)
        return
    lines = proof.read_text(errors="replace").splitlines()
    order = [line.split()[0] for line in lines if line.strip()]
    if order != list(classes):
        place = next(
            (i for i, (a, b) in enumerate(zip(order, classes, strict=False)) if a != b),
            min(len(order), len(classes)),
        )
        value = (
            f"{proof.name} is not the sorted list of {root / 'train'}: number {place} is "
            f"{_at(order, place)} there and {_at(classes, place)} here"
        )
        remedy = f"Renumber {val_list.name} by sorted folder name, and sort {proof.name}"
        yield error("val-order", val_list, value, remedy)


def _folder_fault(
    val_list: Path, numbers: dict[str, int], classes: Sequence[str]
) -> Iterator[Finding]:
    """Compares numbers with the class folders that the listed names themselves stand in."""
    places = {name: index for index, name in enumerate(classes)}
    wrong = [
        f"{name} {number} (is {places.get(name.split('/')[0], 'no class')})"
        for name, number in numbers.items()
        if places.get(name.split("/")[0]) != number
    ]
    if wrong:
        value = f"numbers that are not those of the sorted folders: {listed(wrong, shown=3)}"
        yield error("val-order", val_list, value, "Number classes by sorted folder name from 0")


def _at(names: Sequence[str], place: int) -> str:
    return names[place] if place < len(names) else "missing"


def _name_faults(place: Path, val_list: Path, rows: list[list[str]]) -> Iterator[Finding]:
    names = Counter(name for name, _ in rows)
    twice = [name for name, times in names.items() if times > 1]
    if twice:
        yield error("val-twice", val_list, f"listed twice: {listed(twice)}", "List each once")
    there = {path.name for path in place.iterdir() if path.is_file()}
    lone = sorted(there - {Path(name).name for name in names})
    if lone:
        value = f"{len(lone):,} pictures of {place} are not listed, first: {', '.join(lone[:3])}"
        yield error("val-unlisted", val_list, value, "List them, or move them away")
