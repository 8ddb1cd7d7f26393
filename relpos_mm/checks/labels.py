"""Labels of segmentation: where they are loaded, and whether label zero is dropped once."""

from __future__ import annotations

import inspect
from pathlib import Path

from mmengine.config import Config

from .pipelines import SPLITS, dataset_class, innermost_dataset, pipelines_of
from .problem import Problem


def check_label_order(path: Path, config: Config) -> list[Problem]:
    """Refuse test pipelines of segmentation that resize the label with the picture.

    The score would then be computed at the network's resolution instead of the label's own.
    """
    problems = []
    for key, pipeline in pipelines_of(config):
        if key.startswith("train"):
            continue
        types = [transform["type"] for transform in pipeline]
        resizes = [i for i, name in enumerate(types) if "Resize" in name]
        loads = [i for i, name in enumerate(types) if name == "LoadAnnotations"]
        if resizes and loads and loads[0] < resizes[-1]:
            problems.append(
                Problem(
                    path,
                    f"{key}.{loads[0]}",
                    types,
                    "the label is loaded before the resize, so mIoU would be computed on resized "
                    "labels",
                    "Put LoadAnnotations behind the resize",
                )
            )
    return problems


def check_zero_label(path: Path, config: Config) -> list[Problem]:
    """Refuse label reduction that is done twice, or differently in data set and transform."""
    problems = []
    flags = {split: _reduces(config, split) for split in SPLITS if f"{split}_dataloader" in config}
    train = flags.get("train", next(iter(flags.values()), False))
    for split, flag in flags.items():
        if flag != train:
            key = f"{split}_dataloader.dataset.reduce_zero_label"
            remedy = f"Set it to {train}"
            problems.append(Problem(path, key, flag, f"the training split has {train}", remedy))
    for key, pipeline in pipelines_of(config):
        split = "test" if key.startswith("tta") else key.split("_")[0]
        loads = [item for item in enumerate(pipeline) if item[1]["type"] == "LoadAnnotations"]
        for index, transform in loads:
            stated = transform.get("reduce_zero_label")
            if stated is not None and stated != flags[split]:
                problems.append(
                    Problem(
                        path,
                        f"{key}.{index}.reduce_zero_label",
                        stated,
                        f"the data set has {flags[split]}, so labels would be off by one class",
                        f"Set it to {flags[split]} or leave it out",
                    )
                )
        if len(loads) > 1:
            problems.append(
                Problem(
                    path,
                    f"{key}.{loads[1][0]}",
                    loads[1][1],
                    "labels are loaded, and label zero reduced, twice",
                    "Keep one LoadAnnotations",
                )
            )
    return problems


def _reduces(config: Config, split: str) -> bool:
    """Return the data set's ``reduce_zero_label``, stated or by its class's default."""
    dataset = innermost_dataset(config[f"{split}_dataloader"]["dataset"])
    if "reduce_zero_label" in dataset:
        return dataset["reduce_zero_label"]
    parameters = inspect.signature(dataset_class(config, dataset)).parameters
    parameter = parameters.get("reduce_zero_label")
    return bool(parameter and parameter.default)
