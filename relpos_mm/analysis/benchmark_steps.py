"""The suite ``steps``: whole training steps and evaluations with oneDNN against the default BLAS.

A step is what a training does with a batch that it has read: preprocessing, backbone, heads,
losses, backward pass, clipping, optimiser. Both sides start from the same weights and see the same
batch.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.model import BaseModel
from mmengine.optim import OptimWrapper, build_optim_wrapper
from mmengine.registry import DATASETS, MODELS, init_default_scope

from relpos_mm.data import MissingData, require_data
from relpos_mm.engine.cli import load_config
from relpos_mm.engine.cpu_gemm import use_onednn
from relpos_mm.engine.repeat import seed_all

from .agreement import largest_error
from .benchmark import STEPS, LeftOut, Pair, compared

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
# A step of each task as demo and mini study have it.
MINI = tuple(f"mini/{task}_swin_t_relonly" for task in ("cls", "cascade", "upernet"))


def build_training(cfg: Config) -> tuple[BaseModel, OptimWrapper]:
    """Return the model of a config with the initial weights of seed 0, and its optimiser."""
    init_default_scope(cfg.default_scope)
    seed_all(0)
    if preprocessor := cfg.get("data_preprocessor"):
        cfg.model.setdefault("data_preprocessor", preprocessor)
    model: BaseModel = MODELS.build(cfg.model)
    model.init_weights()
    return model, build_optim_wrapper(model, cfg.optim_wrapper)


class Work:
    """Training steps and evaluations of a config, each on the first batch of its data.

    Args:
        config: Path below ``configs/``, without ``.py``.
        batch_size: Pictures; the config's own number by default.

    Raises:
        relpos_mm.data.MissingData: The config's data are missing.
    """

    def __init__(self, config: str, batch_size: int | None = None) -> None:
        cfg = load_config(str(CONFIGS / f"{config}.py"))
        require_data(cfg, ("train", "val"))
        self.model, self.wrapper = build_training(cfg)
        # An evaluation reads pictures in its own way: a detector's sizes go back to the original.
        self.batches = [
            _first_batch(loader, batch_size)
            for loader in (cfg.train_dataloader, cfg.val_dataloader)
        ]

    def training(self) -> list[torch.Tensor]:
        """Do one training step and return its losses."""
        seed_all(0)  # drop path and sampled proposals of both sides alike
        self.model.train()
        losses = self.model.train_step(copy.deepcopy(self.batches[0]), self.wrapper)
        return [torch.as_tensor(value).detach() for value in losses.values()]

    def inference(self) -> list[Any]:
        """Predict on the batch."""
        self.model.eval()
        with torch.no_grad():
            return self.model.test_step(copy.deepcopy(self.batches[1]))


def _first_batch(loader: Any, size: int | None) -> Any:
    dataset = DATASETS.build(loader.dataset)
    return pseudo_collate([dataset[i] for i in range(size or loader.batch_size)])


def on_route(onednn: bool, run: Any) -> Any:
    """Run with one of the two ways to multiply, and leave the default one behind."""
    use_onednn(onednn)
    try:
        return run()
    finally:
        use_onednn(False)


class _Route:
    """A work whose steps take one of the two ways to multiply."""

    def __init__(self, work: Work, onednn: bool) -> None:
        self.inference = partial(on_route, onednn, work.inference)
        self.training = partial(on_route, onednn, work.training)


def pairs(
    configs: Iterable[str], steps: Iterable[str] = STEPS, batch_size: int | None = None
) -> Iterator[Pair | LeftOut]:
    """Yield oneDNN against the default BLAS for each config; first losses are compared."""
    for config in configs:
        try:
            works = [Work(config, batch_size) for _ in range(2)]
        except MissingData:
            yield LeftOut(f"whole steps of {config}", "its data are not there, see docs/data.md")
            continue
        works[1].model.load_state_dict(works[0].model.state_dict())
        losses = [on_route(bool(i), work.training) for i, work in enumerate(works)]
        error = largest_error(losses[1], losses[0])
        names = {"suite": "steps", "size": config, "dtype": "float32"}
        yield from compared(
            _Route(works[0], onednn=False),
            _Route(works[1], onednn=True),
            {**names, "base": "default", "name": "onednn"},
            tuple(steps),
            lambda step, error=error: error,  # type: ignore[misc]
            lambda step: None,
        )
