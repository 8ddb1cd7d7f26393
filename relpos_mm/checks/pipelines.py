"""Ways through the data pipelines of a resolved config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mmengine.config import Config
from mmengine.registry import DATASETS

SPLITS = ("train", "val", "test")


def innermost_dataset(dataset: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the data set inside wrappers such as ``RepeatDataset``."""
    while "dataset" in dataset:
        dataset = dataset["dataset"]
    return dataset


def dataset_class(config: Config, dataset: Mapping[str, Any]) -> type:
    """Return the class of a data set in the config's library.

    Raises:
        ValueError: The library has no data set of that type.
    """
    with DATASETS.switch_scope_and_registry(config.get("default_scope")) as registry:
        found = registry.get(dataset["type"])
    if found is None:
        raise ValueError(f"no data set of {config.default_scope} is called {dataset['type']!r}")
    return found


def pipelines_of(config: Config) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield ``(dotted key, transforms in order)`` of each pipeline.

    ``TestTimeAug`` is a product of alternatives; the first combination stands for all, because the
    alternatives at one place are of one type.
    """
    for split in SPLITS:
        loader = config.get(f"{split}_dataloader")
        if loader:
            key = f"{split}_dataloader.dataset.pipeline"
            yield key, list(innermost_dataset(loader["dataset"]).get("pipeline", []))
    for index, transform in enumerate(config.get("tta_pipeline") or []):
        if transform["type"] == "TestTimeAug":
            combination = [alternatives[0] for alternatives in transform["transforms"]]
            yield "tta_pipeline", [*config.tta_pipeline[:index], *combination]
