"""Pictures and label files that belong together by their names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from relpos_mm.data.check.finding import Finding, error


def check_pairs(
    pictures: Path, labels: Path, img_suffix: str, label_suffix: str
) -> tuple[list[str], list[Finding]]:
    """Pairs the files of two folders, sub-folders included, as mmseg's data sets do.

    Returns:
        The names (paths without suffix) that both sides have, sorted; and the findings.
    """
    left, right = names_in(pictures, img_suffix), names_in(labels, label_suffix)
    findings = [
        *_suffix_fault(pictures, img_suffix, len(left)),
        *_suffix_fault(labels, label_suffix, len(right)),
    ]
    counts = f"{len(left):,} pictures ({img_suffix}), {len(right):,} label files ({label_suffix})"
    for place, lone, missing in (
        (pictures, left - right, "label"),
        (labels, right - left, "picture"),
    ):
        if lone and left and right:
            first = ", ".join(sorted(lone)[:3])
            value = f"{len(lone):,} files without a {missing}, first: {first}; {counts}"
            remedy = f"Add the missing files in {labels if place == pictures else pictures}"
            findings.append(error("pair", place, value, remedy))
    return sorted(left & right), findings


def names_in(folder: Path, suffix: str) -> set[str]:
    """Paths of the files that end in `suffix`, relative to `folder` and without the suffix."""
    return {path[: -len(suffix)] for path in _files(folder) if path.endswith(suffix)}


def _files(folder: Path) -> Iterator[str]:
    for here, _, files in os.walk(folder, followlinks=True):
        for name in files:
            if not name.startswith("."):
                yield os.path.relpath(os.path.join(here, name), folder)


def _suffix_fault(folder: Path, suffix: str, found: int) -> Iterator[Finding]:
    """Says that files are there under other suffixes, or none at all."""
    others: dict[str, int] = {}
    for path in _files(folder):
        if not path.endswith(suffix):
            ending = Path(path).suffix or "no suffix"
            others[ending] = others.get(ending, 0) + 1
    shown = ", ".join(f"{count:,} {ending}" for ending, count in sorted(others.items()))
    if not found:
        value = f"0 files end in {suffix}; found {shown or 'an empty or missing folder'}"
        yield error("suffix", folder, value, "Correct the folder, the files, or the suffix setting")
        return
    alike = {e: n for e, n in others.items() if suffix.lower().endswith(e.lower())}
    if alike:
        shown = ", ".join(f"{count:,} {ending}" for ending, count in alike.items())
        value = f"{shown} beside {found:,} {suffix}: these would not be read"
        yield error("suffix", folder, value, f"Rename them to {suffix}")
