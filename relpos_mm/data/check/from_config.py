"""What a resolved config reads, as splits that the checks understand."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mmengine.config import Config

from relpos_mm.checks.pipelines import dataset_class
from relpos_mm.data.check.ade import LabelledSplit
from relpos_mm.data.check.coco import CocoSplit
from relpos_mm.data.sources import unwrap

PARTS = ("train", "val", "test")


def datasets(cfg: Config, parts: Sequence[str] = PARTS) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The plain data sets of the loaders, each with the name of its part."""
    for part in parts:
        loader = cfg.get(f"{part}_dataloader") or {}
        for dataset in unwrap(loader.get("dataset")):
            yield part, dataset


def classes_of(cfg: Config, dataset: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Class names of a data set: of its config, else of its class; None when files name them."""
    names = dict(dataset.get("metainfo") or {}).get("classes")
    if names is None:
        names = getattr(dataset_class(cfg, dataset), "METAINFO", {}).get("classes")
    return None if names is None else tuple(names)


def reads_like(cfg: Config, dataset: Mapping[str, Any], module: str, name: str) -> bool:
    """Whether a data set reads local files just as `module.name` does (without importing it).

    Derived classes that read their files in another way, as LVIS does, are not meant.
    """
    places = (dataset.get("data_root"), dataset.get("ann_file"))
    if any("://" in str(place) for place in places):
        return False
    try:
        cls = dataset_class(cfg, dataset)
    except ValueError:
        return False
    bases = [b for b in cls.__mro__ if b.__name__ == name and b.__module__.startswith(module)]
    return bool(bases) and all(
        getattr(cls, method, None) is getattr(bases[0], method, None)
        for method in ("load_data_list", "parse_data_info")
    )


def coco_split(cfg: Config, dataset: Mapping[str, Any], root: Path | None = None) -> CocoSplit:
    """The annotation file, pictures and classes of a `CocoDataset`.

    Args:
        cfg: The config.
        dataset: One plain data set of it.
        root: Taken instead of `data_root`.
    """
    return CocoSplit(
        joined(dataset, str(dataset.get("ann_file") or ""), root),
        joined(dataset, _prefix(dataset, "img"), root),
        classes_of(cfg, dataset),
        masks=any(step.get("with_mask") for step in dataset.get("pipeline") or ()),
    )


def labelled_split(
    cfg: Config, dataset: Mapping[str, Any], root: Path | None = None
) -> LabelledSplit:
    """Pictures and label files of a data set of mmseg.

    With a part of its classes, label files still hold the numbers of all: mmseg maps them.
    """
    in_files = getattr(dataset_class(cfg, dataset), "METAINFO", {}).get("classes")
    return LabelledSplit(
        joined(dataset, _prefix(dataset, "img_path"), root),
        joined(dataset, _prefix(dataset, "seg_map_path"), root),
        len(in_files or classes_of(cfg, dataset) or ()),
        bool(_setting(cfg, dataset, "reduce_zero_label", False)),
        str(_setting(cfg, dataset, "img_suffix", ".jpg")),
        str(_setting(cfg, dataset, "seg_map_suffix", ".png")),
    )


def head_classes(cfg: Config) -> int | None:
    """`num_classes` of a classifier's head."""
    return ((cfg.get("model") or {}).get("head") or {}).get("num_classes")


def evaluators(cfg: Config, part: str) -> list[Any]:
    """The evaluators of a part, as they stand in the config."""
    found = cfg.get(f"{part}_evaluator") or []
    return list(found) if isinstance(found, (list, tuple)) else [found]


def _setting(cfg: Config, dataset: Mapping[str, Any], name: str, otherwise: Any) -> Any:
    """An argument of a data set: from the config, else the default of its class."""
    if name in dataset:
        return dataset[name]
    for cls in dataset_class(cfg, dataset).__mro__:
        parameter = inspect.signature(cls).parameters.get(name)
        if parameter is not None and parameter.default is not inspect.Parameter.empty:
            return parameter.default
    return otherwise


def _prefix(dataset: Mapping[str, Any], key: str) -> str:
    prefix = dataset.get("data_prefix") or ""
    return str(prefix.get(key) or "") if isinstance(prefix, Mapping) else str(prefix)


def joined(dataset: Mapping[str, Any], piece: str, root: Path | None = None) -> Path:
    """A path of a data set below `root`, which is its own `data_root` if not given."""
    return Path(os.path.join(str(root or dataset.get("data_root") or ""), piece))
