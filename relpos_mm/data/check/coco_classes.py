"""Class names of a config against the categories of a COCO file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from relpos_mm.data.check.finding import Finding, error, listed, note

_SHOWN = 80


def check_class_names(
    path: Path, categories: Sequence[dict[str, Any]], classes: Sequence[str] | None
) -> Iterator[Finding]:
    """Compares names and order; mmdet numbers labels in the order of the file.

    A name that the file lacks silently empties or shrinks the training set. An order that differs
    keeps AP right, but draws and lists every object under another class's name.
    """
    if classes is None:
        return
    names = [str(category.get("name")) for category in categories]
    both = f"the config has {_quoted(classes)}; the file has {_quoted(names)}"
    absent = [name for name in classes if name not in names]
    if absent:
        value = f"it has no category called {_quoted(absent)}: {both}"
        remedy = "Write metainfo=dict(classes=...) in the config with the file's own spelling"
        yield error("coco-classes", path, value, remedy)
        return
    used = [name for name in names if name in classes]
    if used != list(classes):
        remedy = f"Write metainfo=dict(classes={tuple(used)!r}) in the config"
        yield error("coco-class-order", path, f"the order of classes differs: {both}", remedy)
    extra = [name for name in names if name not in classes]
    if extra:
        value = f"categories that the config leaves out: {_quoted(extra)}"
        yield note("coco-classes-unused", path, value, "Their annotations are not read")


def _quoted(names: Sequence[str]) -> str:
    return listed([repr(name) for name in names], shown=_SHOWN)
