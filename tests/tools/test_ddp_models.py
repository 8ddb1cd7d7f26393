"""The mini models of all three tasks in two processes: one step each, against one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from torch import Tensor, nn

from relpos_mm.engine import CpuDistributedDataParallel
from relpos_mm.engine.cli import load_config
from tests.engine.processes import in_processes

from .conftest import Workspace

pytestmark = pytest.mark.train

Batch = dict[str, Any]


def model_and_batch(family: str) -> tuple[nn.Module, Batch]:
    """Return a model in evaluation-free training mode and four pictures of the mini set."""
    cfg = load_config(f"configs/mini/{family}_swin_t_absrel.py")
    init_default_scope(cfg.default_scope)
    torch.manual_seed(0)
    model = MODELS.build(cfg.model)
    model.init_weights()
    cfg.train_dataloader.update(batch_size=4, num_workers=0, persistent_workers=False)
    return model.train(), next(iter(Runner.build_dataloader(cfg.train_dataloader, seed=0)))


def half(batch: Batch, rank: int) -> Batch:
    """Return the pictures of one process."""
    samples = batch["data_samples"][2 * rank : 2 * rank + 2]
    return {"inputs": batch["inputs"][2 * rank : 2 * rank + 2], "data_samples": samples}


def gradients(model: nn.Module, batch: Batch, rank: int) -> dict[str, Tensor | None]:
    """Return the gradients of the total loss; random proposals depend on ``rank`` alone."""
    torch.manual_seed(100 + rank)
    inner = getattr(model, "module", model)
    inner.zero_grad()
    data = inner.data_preprocessor(batch, True)
    losses = model(**data, mode="loss")
    inner.parse_losses(losses)[0].backward()
    return {n: None if p.grad is None else p.grad.clone() for n, p in inner.named_parameters()}


@pytest.mark.parametrize("family", ["cls", "cascade", "upernet"])
def test_b036_gradients_are_the_mean_of_the_processes(
    in_workspace: Workspace, tmp_path: Path, family: str
) -> None:
    """B038, B053: without find_unused_parameters; in the detector one process sees no object."""
    model, batch = model_and_batch(family)
    if family == "cascade":
        for sample in batch["data_samples"][:2]:
            sample.gt_instances = sample.gt_instances[:0]
        assert sum(len(s.gt_instances) for s in batch["data_samples"][2:]) > 0
    # Batch statistics of two pictures change the model, so each computation starts from the same.
    start = {name: value.clone() for name, value in model.state_dict().items()}
    alone = []
    for rank in range(2):
        model.load_state_dict(start)
        alone.append(gradients(model, half(batch, rank), rank))
    model.load_state_dict(start)
    assert not [name for name, grad in alone[1].items() if grad is None]

    def work(rank: int) -> dict[str, Tensor]:
        wrapped = CpuDistributedDataParallel(model, broadcast_buffers=False)
        first = gradients(wrapped, half(batch, rank), rank)
        gradients(wrapped, half(batch, rank), rank)  # torch complains in the second iteration
        return first

    one, two = in_processes(2, tmp_path / "group", work)
    for name, grad in one.items():
        assert torch.equal(grad, two[name]), name
        parts = [torch.zeros_like(grad) if a[name] is None else a[name] for a in alone]
        torch.testing.assert_close(grad, sum(parts) / 2, rtol=1e-3, atol=1e-5, msg=name)
