"""Random numbers that depend on where a training is, not on how it came there.

The generators of a process hold a state that a checkpoint does not. A run that is broken off and
resumed would therefore draw other augmentations and drop other paths than an unbroken one. Here
every sample and every iteration sets the generators from the seed and its own number, so the same
place draws the same numbers: after a resume, with another number of loader processes, and, for
samples, with another number of training processes of the same total batch.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from mmengine.device import get_device
from mmengine.dist import get_dist_info
from mmengine.hooks import Hook
from mmengine.registry import DATA_SAMPLERS, DATASETS, HOOKS
from mmengine.runner import Runner
from torch.utils.data import Dataset, Sampler

_SAMPLE, _ITERATION = 0, 1


def seed_all(*place: int) -> None:
    """Set the generators of Python, numpy and torch from non-negative integers."""
    first, second = np.random.SeedSequence(place).generate_state(2, np.uint32)
    random.seed(int(first))
    np.random.seed(int(first))
    seed = int(first) << 32 | int(second)
    if get_device() == "cpu":
        # torch.manual_seed also notes the seed for a GPU that may come, with a stack trace, which
        # takes longer than reading a small picture.
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


class Draw(int):
    """An index of a data set that knows its number in the stream of all processes' samples."""

    number: int

    @classmethod
    def at(cls, index: int, number: int) -> Draw:
        """Return ``index`` as the ``number``-th sample of the training, counted from 0."""
        draw = cls(index)
        draw.number = number
        return draw


@DATA_SAMPLERS.register_module()
class NumberedSampler(Sampler):
    """Another sampler whose indices come as :class:`Draw`.

    Args:
        sampler: Config of that sampler.
        dataset: What it samples from.
        seed: Seed of its order, equal in all processes.
    """

    def __init__(self, sampler: dict[str, Any], dataset: Any, seed: int | None) -> None:
        self.dataset = dataset
        self.sampler = DATA_SAMPLERS.build(sampler, default_args={"dataset": dataset, "seed": seed})
        self._rank, self._processes = get_dist_info()
        self._passed = 0
        if hasattr(self.sampler, "skip"):  # mmengine asks whether the method is there
            self.skip = self._skip

    def __iter__(self) -> Iterator[Draw]:
        for place, index in enumerate(self.sampler, self._passed):
            yield Draw.at(index, place * self._processes + self._rank)

    def __len__(self) -> int:
        return len(self.sampler)

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch."""
        self._passed = epoch * len(self)
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def _skip(self, samples: int) -> None:
        """Start behind the first ``samples`` of this process; reads none of them."""
        self._passed = samples
        self.sampler.skip(samples)


@DATASETS.register_module()
class SeededDataset(Dataset):
    """Another data set, all attributes included, that draws by the number of a :class:`Draw`.

    Args:
        dataset: Config of that data set.
        seed: Seed of the training.
    """

    def __init__(self, dataset: dict[str, Any], seed: int) -> None:
        self.seed = seed
        self.dataset = DATASETS.build(dataset)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        if isinstance(index, Draw):
            seed_all(self.seed, _SAMPLE, index.number)
        return self.dataset[index]

    def __getattr__(self, name: str) -> Any:
        if name == "dataset":  # not there yet while being unpickled
            raise AttributeError(name)
        return getattr(self.dataset, name)


@HOOKS.register_module()
class IterationSeedHook(Hook):
    """Set the generators before every training iteration, for drop path and sampled proposals."""

    priority = "HIGHEST"

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        seed_all(runner.seed, _ITERATION, runner.iter, runner.rank)


def numbered(loader: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return a loader's config with data set and sampler as above."""
    changed = dict(loader)
    if isinstance(loader.get("dataset"), dict):
        changed["dataset"] = {"type": "SeededDataset", "dataset": loader["dataset"], "seed": seed}
    if isinstance(loader.get("sampler"), dict):
        changed["sampler"] = {"type": "NumberedSampler", "sampler": loader["sampler"]}
    return changed
