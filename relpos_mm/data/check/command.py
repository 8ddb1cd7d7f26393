"""`tools/data.py check`: which check runs for which set and config."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from mmengine.config import Config

from relpos_mm.data.check.ade import ADE_COUNTS, LabelledSplit, check_ade, check_label_maps
from relpos_mm.data.check.coco import COCO_COUNTS, CocoSplit, check_coco, published_splits
from relpos_mm.data.check.finding import error
from relpos_mm.data.check.from_config import (
    coco_split,
    datasets,
    head_classes,
    labelled_split,
    reads_like,
)
from relpos_mm.data.check.imagenet import check_imagenet
from relpos_mm.data.check.mini import check_mini
from relpos_mm.data.check.outcome import Options, Outcome, missing_layout
from relpos_mm.data.check.report import lines, write_json

Split = TypeVar("Split", CocoSplit, LabelledSplit)
_COUNTS = {**COCO_COUNTS, **ADE_COUNTS}
_COCO_HOW = "Unpack train2017.zip, val2017.zip and annotations_trainval2017.zip into it"


def run_check(args: argparse.Namespace) -> int:
    """Checks, prints and writes; returns 0 when nothing stands in the way of a run, else 1.

    Args:
        args: `set`, `path`, `config`, `mini`, `limit`, `workers` and `json` of the command line.

    Raises:
        UserError: There is no such config, or it cannot be read.
        OSError: `json` cannot be written; found before the pictures are opened.
    """
    if args.json:
        Path(args.json).parent.mkdir(parents=True, exist_ok=True)
        Path(args.json).open("a").close()
    options = Options(args.mini, args.limit, args.workers)
    name = f"{args.set} in {args.path}"
    outcome = check_set(args.set, Path(args.path), options, args.config)
    # A name in a json or on the disk need not be one that can be printed.
    printable = "\n".join(lines(name, outcome)).encode(errors="backslashreplace").decode()
    print(printable)
    if args.json:
        write_json(Path(args.json), name, outcome)
    return 0 if outcome.passed else 1


def check_set(name: str, root: Path, options: Options, config: str | None = None) -> Outcome:
    """Checks one set.

    Args:
        name: "mini", "coco", "ade20k" or "imagenet".
        root: Its folder.
        options: How thorough.
        config: Path of a config whose file names, classes and class counts are to hold.
    """
    if not root.is_dir():
        value = "there is no such folder"
        return Outcome([error("layout", root, value, "Give the folder that holds the data set")])
    cfg = None if config is None else _read(config)
    if name == "mini":
        return check_mini(root, options)
    if name == "imagenet":
        return check_imagenet(root, options, cfg and head_classes(cfg))
    if cfg is not None:
        return _check_by_config(name, root, options, cfg)
    if name == "ade20k":
        return check_ade(root, options)
    layout = missing_layout(root, ("annotations", "train2017", "val2017"), _COCO_HOW)
    return Outcome(layout) if layout else check_coco(published_splits(root, options.mini), options)


def _read(config: str) -> Config:
    from relpos_mm.engine.cli import load_config  # that module imports this package

    return load_config(config)


def _check_by_config(name: str, root: Path, options: Options, cfg: Config) -> Outcome:
    """Checks the files that the loaders of `cfg` would read, below `root`."""
    family = {"coco": ("mmdet", "CocoDataset"), "ade20k": ("mmseg", "BaseSegDataset")}[name]
    found = [dataset for _, dataset in datasets(cfg) if reads_like(cfg, dataset, *family)]
    if not found:
        value = f"none of its loaders has a {family[1]}"
        return Outcome([error("config", str(cfg.filename), value, f"Give a config for {name}")])
    if name == "coco":
        splits = dict.fromkeys(coco_split(cfg, dataset, root) for dataset in found)
        return check_coco([_official(split, options.mini) for split in splits], options)
    pairs = dict.fromkeys(labelled_split(cfg, dataset, root) for dataset in found)
    return check_label_maps([_official(pair, options.mini) for pair in pairs], options)


def _official(split: Split, mini: bool) -> Split:
    """The split with the published set's count, where its folder has the published name."""
    return split if mini else replace(split, official=_COUNTS.get(split.pictures.name))
