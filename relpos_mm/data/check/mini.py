"""The embedded set `bdpq`: manifest, checksums, and the rules of all three layouts."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path

from relpos_mm.data.bdpq.knobs import LETTERS, SEG_CLASSES
from relpos_mm.data.check.ade import LabelledSplit, check_label_maps
from relpos_mm.data.check.coco import CocoSplit, check_coco
from relpos_mm.data.check.finding import error
from relpos_mm.data.check.outcome import Options, Outcome, missing_layout
from relpos_mm.data.check.work import check_all

_MANIFEST = "manifest.json"
_HOW = "Make it with: python tools/data.py make-mini"
_AGAIN = "Make it again: python tools/data.py make-mini --force"


def check_mini(root: Path, options: Options) -> Outcome:
    """Checks that every byte is as it was made, and that the readers will find what they need."""
    layout = missing_layout(root, ("cls", "img", "ann", "seg"), _HOW)
    if layout:
        return Outcome(layout)
    try:
        manifest = json.loads((root / _MANIFEST).read_bytes())
        sums, counts = dict(manifest["sha256"]), dict(manifest["counts"])
    except (OSError, ValueError, KeyError, TypeError) as reason:
        value = f"it cannot be read: {reason}"
        return Outcome([error("manifest", str(root / _MANIFEST), value, _AGAIN)])
    outcome = Outcome()
    for group, wanted in sums.items():
        _check_group(outcome, root, group, str(wanted), counts.get(group), options.workers)
    pairs, splits = [], []
    for folder in sorted(path for path in (root / "img").iterdir() if path.is_dir()):
        name = folder.name
        pairs.append(
            LabelledSplit(folder, root / "seg" / name, len(SEG_CLASSES), False, img_suffix=".png")
        )
        splits.append(CocoSplit(root / "ann" / f"{name}.json", folder, LETTERS))
    for part in (check_label_maps(pairs, options), check_coco(splits, options)):
        outcome.add(*part.findings)
        outcome.counts |= part.counts
    return outcome


def _check_group(
    outcome: Outcome, root: Path, group: str, wanted: str, count: int | None, workers: int
) -> None:
    """Compares one checksum of the manifest: of a file, or over all files of a folder."""
    place = root / group
    if count is None:
        found = hashlib.sha256(place.read_bytes()).hexdigest() if place.is_file() else "no file"
    else:
        files = sorted(place.rglob("*.png"), key=lambda path: path.stem)
        outcome.expect("files", place, len(files), count)
        digest = hashlib.sha256()
        sums = check_all(partial(_line, root), files, workers=workers, what=f"checksums of {group}")
        for line in sums:
            digest.update(line.encode())
        found = digest.hexdigest()
    if found != wanted:
        value = f"sha256 is {found[:16]}, the manifest says {wanted[:16]}"
        outcome.add(error("checksum", place, value, _AGAIN))


def _line(root: Path, path: Path) -> str:
    """The line that the writer put into a group's checksum for this file."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{path.relative_to(root).as_posix()} {digest}\n"
