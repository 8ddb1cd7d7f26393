"""The cheap rules: what every training and test looks at before anything is built.

No picture is decoded and few label files are; `tools/data.py check` looks at everything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.logging import print_log

from relpos_mm.checks.labels import check_label_order, check_zero_label
from relpos_mm.data.check.ade import LabelledSplit
from relpos_mm.data.check.coco_start import check_coco_start
from relpos_mm.data.check.finding import Finding, error, errors_of, note
from relpos_mm.data.check.from_config import (
    coco_split,
    datasets,
    head_classes,
    joined,
    labelled_split,
    reads_like,
)
from relpos_mm.data.check.imagenet import class_count_fault, look_into
from relpos_mm.data.check.imagenet_val import UNPROVED, check_val_list
from relpos_mm.data.check.label_map import check_label_map
from relpos_mm.data.check.pairs import check_pairs
from relpos_mm.data.check.work import spread
from relpos_mm.engine.errors import UserError

_LABEL_FILES = 20


class BadData(UserError):
    """The data of a config would give wrong numbers or stop the run; the message says why."""


def check_start(cfg: Config, parts: Sequence[str]) -> None:
    """Applies the cheap rules to the data that a run will read, in its first process alone.

    Args:
        cfg: A resolved config whose paths exist (see `require_data`).
        parts: Loaders that the run uses: "train", "val", "test".

    Raises:
        BadData: with one message about everything that is wrong.
    """
    if int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))):
        return
    findings = list(dict.fromkeys(_findings(cfg, parts)))
    for finding in findings:
        if not finding.is_error:
            print_log(f"data: {finding}", logger="current")
    if wrong := errors_of(findings):
        name = getattr(cfg, "filename", None) or "this config"
        text = "\n".join(f"    {finding}" for finding in wrong)
        raise BadData(f"The data of {name} cannot be used:\n{text}")


def _findings(cfg: Config, parts: Sequence[str]) -> Iterator[Finding]:
    if cfg.get("task") == "segmentation" or cfg.get("default_scope") == "mmseg":
        for problem in (*check_label_order(_file(cfg), cfg), *check_zero_label(_file(cfg), cfg)):
            place = f"{problem.file}, {problem.key}"
            yield error("config", place, f"{problem.value!r}: {problem.reason}", problem.remedy)
    for part, dataset in datasets(cfg, parts):
        if reads_like(cfg, dataset, "mmdet", "CocoDataset"):
            yield from check_coco_start(cfg, part, dataset, coco_split(cfg, dataset))
        elif reads_like(cfg, dataset, "mmseg", "BaseSegDataset"):
            if not dataset.get("ann_file") and (dataset.get("data_prefix") or {}).get(
                "seg_map_path"
            ):
                yield from _check_labels(labelled_split(cfg, dataset))
        elif reads_like(cfg, dataset, "mmpretrain", "CustomDataset"):
            yield from _check_folders(cfg, dataset)


def _file(cfg: Config) -> Path:
    return Path(getattr(cfg, "filename", None) or "this config")


def _check_labels(split: LabelledSplit) -> Iterator[Finding]:
    """Names of all pairs, and the values of a few label files."""
    names, findings = check_pairs(
        split.pictures, split.labels, split.img_suffix, split.label_suffix
    )
    yield from findings
    for name in spread(names, _LABEL_FILES):
        path = split.labels / (name + split.label_suffix)
        yield from check_label_map(path, split.num_classes, split.reduce_zero)[1]


def _check_folders(cfg: Config, dataset: Mapping[str, Any]) -> Iterator[Finding]:
    """Class folders against the head, and the order of a flat validation list."""
    if not dataset.get("with_label", True) or dataset.get("split") == "test":
        return
    root = Path(str(dataset.get("data_root") or ""))
    place = joined(dataset, "" if _prefix(dataset) is None else str(_prefix(dataset)))
    listing = dataset.get("ann_file")
    if not listing and dataset.get("split"):
        default = root / "meta" / f"{dataset['split']}.txt"
        listing = default if default.is_file() else None
    if not listing:
        yield from class_count_fault(place, look_into(place), head_classes(cfg))
    elif (root / "train").is_dir() and place == root / "val":
        classes = look_into(root / "train").classes
        for finding in check_val_list(root, root / listing, classes)[1]:
            if finding.rule == UNPROVED:  # not known to be wrong
                finding = note(finding.rule, finding.file, finding.value, finding.remedy)
            yield finding


def _prefix(dataset: Mapping[str, Any]) -> str | None:
    prefix = dataset.get("data_prefix") or dataset.get("split")
    return prefix.get("img_path") if isinstance(prefix, Mapping) else prefix
