"""Which paths a resolved config reads, and which data set they belong to."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relpos_mm.data.bdpq.knobs import LETTERS, SEG_CLASSES

# mmpretrain numbers classes by folder name, so the order is left open.
_EMBEDDED_CLASSES = (set(LETTERS), set(SEG_CLASSES))


@dataclass(frozen=True)
class Source:
    """One data set of a config.

    Attributes:
        part: "train", "val" or "test".
        kind: "bdpq", "coco", "ade20k", "imagenet" or "other".
        root: Its `data_root`.
        paths: Files and folders it reads, joined to the root.
    """

    part: str
    kind: str
    root: Path
    paths: tuple[Path, ...]


def sources(
    cfg: Mapping[str, Any], parts: Sequence[str] = ("train", "val", "test")
) -> list[Source]:
    """The data sets behind the loaders and evaluators of `cfg`; wrapped and joined ones one by one.

    Remote paths (`s3://...`) are left out: only the library can tell whether they exist.
    """
    found = []
    for part in parts:
        loader = cfg.get(f"{part}_dataloader") or {}
        for dataset in unwrap(loader.get("dataset")):
            found.append(_source(part, dataset))
    return found


def unwrap(dataset: Any) -> Iterator[Mapping[str, Any]]:
    """The plain data sets within repeat, balance and concatenation wrappers."""
    if not isinstance(dataset, Mapping):
        return
    inner = [dataset["dataset"]] if "dataset" in dataset else dataset.get("datasets")
    if inner is None:
        yield dataset
    else:
        for one in inner:
            yield from unwrap(one)


def _source(part: str, dataset: Mapping[str, Any]) -> Source:
    root = str(dataset.get("data_root") or "")
    prefix = dataset.get("data_prefix") or {}
    folders = list(prefix.values()) if isinstance(prefix, Mapping) else [prefix]
    pieces = [dataset.get("ann_file"), dataset.get("split"), *folders]
    joined = [os.path.join(root, piece) for piece in pieces if isinstance(piece, str) and piece]
    local = tuple(Path(path) for path in (joined or [root]) if path and "://" not in path)
    return Source(part, _kind(dataset), Path(root), local)


def _kind(dataset: Mapping[str, Any]) -> str:
    classes = tuple((dataset.get("metainfo") or {}).get("classes") or ())
    if set(classes) in _EMBEDDED_CLASSES:
        return "bdpq"
    if classes:
        return "other"  # somebody's own classes in a known format
    name = str(dataset.get("type", "")).rpartition(".")[2]
    return {"CocoDataset": "coco", "ADE20KDataset": "ade20k", "ImageNet": "imagenet"}.get(
        name, "other"
    )
