"""A trained model with the test data of its config."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.evaluator import Evaluator
from mmengine.logging import MMLogger
from mmengine.model import BaseModel
from torch.utils.data import DataLoader

from relpos_mm.data import data_hash
from relpos_mm.engine.checked_runner import CheckedRunner
from relpos_mm.engine.checkpoints import read_checkpoint
from relpos_mm.engine.cli import load_config, preflight, require_settings
from relpos_mm.engine.errors import UserError
from relpos_mm.engine.facts import encoding_fact
from relpos_mm.engine.metric_names import paper_name
from relpos_mm.engine.predictor import Predictor
from relpos_mm.engine.result import finite_or_none

_MAIN_METRIC = {
    "detection": "box_ap",
    "segmentation": "miou_pct",
    "classification": "top1_pct",
}
Predict = Callable[[dict[str, Any]], Sequence[Any]]


@dataclass
class Subject:
    """A trained model, in evaluation mode, with what is known of it.

    Attributes:
        cfg: Its config.
        checkpoint: Path of the weights.
        sha256: Hash of that file.
        model: The model on its device.
        task: ``detection``, ``segmentation`` or ``classification``; empty where not stated.
        variant: Slug of the encoding.
        seed: Seed of the training, where the checkpoint says so.
        data_sha256: Fingerprint of the test data.
    """

    cfg: Config
    checkpoint: str
    sha256: str
    model: BaseModel
    task: str
    variant: str
    seed: int | None
    data_sha256: str | None

    @property
    def metric(self) -> str:
        """Main metric of the task.

        Raises:
            UserError: The config states no known task.
        """
        if self.task not in _MAIN_METRIC:
            known = ", ".join(_MAIN_METRIC)
            raise UserError(f"{self.cfg.filename}: task = {self.task!r}; set it to one of {known}")
        return _MAIN_METRIC[self.task]

    def loader(self, batch_size: int | None = None) -> DataLoader:
        """Return a loader of the config's test data, in this process, in the data set's order.

        Args:
            batch_size: Pictures at a time; the config's by default.
        """
        loader = {**self.cfg.test_dataloader, "num_workers": 0, "persistent_workers": False}
        loader["sampler"] = {"type": "DefaultSampler", "shuffle": False}
        return CheckedRunner.build_dataloader(
            loader if batch_size is None else {**loader, "batch_size": batch_size}
        )

    def pictures(self, count: int) -> Iterator[dict[str, Any]]:
        """Yield ``count`` test pictures, each as a batch of one, spread evenly over the data set.

        The first ones would be of one class where a data set is sorted.
        """
        loader = self.loader(batch_size=1)
        dataset, collate = loader.dataset, loader.collate_fn
        total = len(dataset)  # type: ignore[arg-type]
        for number in range(min(count, total)):
            yield collate([dataset[number * total // min(count, total)]])

    def score(self, predict: Predict | None = None, count: int | None = None) -> dict[str, Any]:
        """Evaluate with the config's own test evaluator.

        Args:
            predict: Turns a batch into the library's predictions; the model's ``test_step`` by
                default, which makes it the evaluation of ``tools/test.py``.
            count: Only so many pictures, one at a time, see :meth:`pictures`.

        Returns:
            Metrics by the names of ``result.json``; None where there is nothing to measure.
        """
        predict = predict or self.model.test_step
        loader = self.loader(None if count is None else 1)
        evaluator = Evaluator(self.cfg.test_evaluator)
        evaluator.dataset_meta = loader.dataset.metainfo  # type: ignore[attr-defined]
        seen: list[Any] = []
        for batch in loader if count is None else self.pictures(count):
            with torch.no_grad():
                samples = predict(batch)
            evaluator.process(data_samples=samples, data_batch=batch)
            seen += [getattr(sample, "img_id", None) for sample in samples]
        if count is not None:
            _only(evaluator, seen)
        with _quiet():  # a probe evaluates dozens of times
            metrics = evaluator.evaluate(len(seen))
        return {paper_name(name): finite_or_none(value) for name, value in metrics.items()}


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the libraries' tables of metrics off the screen."""
    logger = MMLogger.get_current_instance()
    level = logger.level
    logger.setLevel("WARNING")
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)


def _only(evaluator: Evaluator, pictures: Sequence[Any]) -> None:
    """Keep COCO's evaluation from counting the objects of all other pictures as missed."""
    for metric in evaluator.metrics:
        if hasattr(metric, "img_ids"):
            metric.img_ids = list(pictures)


def load_subject(
    config: str, checkpoint: str, device: str = "cpu", options: dict[str, Any] | None = None
) -> Subject:
    """Load a trained model and its config; no code of the checkpoint is run.

    Args:
        config: The config that the checkpoint was trained with.
        checkpoint: Weights.
        device: Such as ``cpu`` or ``cuda:0``.
        options: ``--cfg-options``.

    Raises:
        UserError: A file is missing or damaged, the checkpoint does not fill the config's model,
            or data are missing.
    """
    cfg = load_config(config, options)
    require_settings(cfg, "model", "test_dataloader")
    preflight(cfg, "test")
    content = read_checkpoint(checkpoint)
    model = Predictor(cfg, checkpoint, device).model
    return Subject(
        cfg=cfg,
        checkpoint=os.path.relpath(checkpoint),
        sha256=hashlib.sha256(Path(checkpoint).read_bytes()).hexdigest(),
        model=model,
        task=cfg.get("task", ""),
        variant=encoding_fact(model)["slug"] or "other",
        seed=content.get("meta", {}).get("seed"),
        data_sha256=data_hash(cfg, ("test",)),
    )
