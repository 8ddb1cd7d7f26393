"""Several processes compute what one does, in every form that a training has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from relpos_mm.encodings.slugs import position_slug
from relpos_mm.engine import CpuDistributedDataParallel
from relpos_mm.engine.distributed import collect_over_the_group

from .processes import in_processes
from .toys import ABSREL, RELONLY, ToyModel, log_of, toy_runner

VARIANTS = [[], [{"type": "AbsoluteTable"}], ABSREL, RELONLY]
# Batch statistics depend on the batch of one process, so the equivalence needs another norm.
PLAIN = {"norm": "Identity"}


def batch_of(size: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        "inputs": torch.randn(size, 3, 16, 16, generator=generator),
        "label": torch.arange(size) % 2,
    }


def cut(batch: dict[str, Tensor], rank: int) -> dict[str, Tensor]:
    return {key: value[rank::2] for key, value in batch.items()}


def steps(model: nn.Module, batch: dict[str, Tensor], count: int = 2) -> list[float]:
    """Take optimiser steps and return the loss of each."""
    # Not AdamW: it would blow up rounding, as in the bias of keys, whose gradient is zero.
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = model(**batch, mode="loss")["loss_cls"]
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def fresh(**arguments: Any) -> ToyModel:
    torch.manual_seed(0)
    model = ToyModel(**{**PLAIN, **arguments})
    model.init_weights()
    return model


@pytest.mark.parametrize("position", VARIANTS, ids=position_slug)
@pytest.mark.parametrize("extra", [{}, {"with_cp": True}, {"frozen_stages": 1}], ids=str)
def test_b036_two_processes_equal_one_of_twice_the_batch(
    tmp_path: Path, position: list[dict[str, Any]], extra: dict[str, Any]
) -> None:
    """B034, B036: all variants, checkpointed or frozen, without find_unused_parameters."""
    whole = fresh(position=position, **extra)
    losses = steps(whole, batch_of(8))

    def work(rank: int) -> tuple[list[float], dict[str, Tensor]]:
        model = CpuDistributedDataParallel(
            fresh(position=position, **extra), broadcast_buffers=False
        )
        return steps(model, cut(batch_of(8), rank)), model.module.state_dict()

    (first, weights), (second, others) = in_processes(2, tmp_path / "group", work)
    assert [(a + b) / 2 for a, b in zip(first, second, strict=True)] == pytest.approx(losses)
    for name, value in whole.state_dict().items():
        assert torch.equal(weights[name], others[name]), name
        torch.testing.assert_close(weights[name], value, rtol=1e-4, atol=1e-6, msg=name)


def test_b036_checkpointing_goes_with_find_unused_parameters(tmp_path: Path) -> None:
    """Non-re-entrant checkpoints do not mark a parameter ready twice."""

    def work(rank: int) -> list[float]:
        model = CpuDistributedDataParallel(fresh(with_cp=True), find_unused_parameters=True)
        return steps(model, cut(batch_of(8), rank), 3)

    losses = in_processes(2, tmp_path / "group", work)
    assert all(torch.tensor(losses).isfinite().flatten())


def test_b034_frozen_stages_stay_as_they_were_and_out_of_the_optimiser(tmp_path: Path) -> None:
    """Frozen from construction on; bit-identical after training in two processes."""
    before = fresh(frozen_stages=1)
    frozen = [name for name, p in before.named_parameters() if not p.requires_grad]
    assert frozen
    start = {name: value.clone() for name, value in before.state_dict().items()}

    def work(rank: int) -> tuple[dict[str, Tensor], int]:
        model = CpuDistributedDataParallel(fresh(frozen_stages=1))
        steps(model, cut(batch_of(8), rank), 3)
        return model.module.state_dict(), sum(p.requires_grad for p in model.parameters())

    for state, trained in in_processes(2, tmp_path / "group", work):
        assert trained + len(frozen) == len(list(before.parameters()))
        assert all(torch.equal(state[name], start[name]) for name in frozen)
        assert not torch.equal(state["head.weight"], start["head.weight"])


@pytest.mark.parametrize("processes", [2, 4])
def test_b084_every_picture_counts_once(tmp_path: Path, processes: int) -> None:
    """B084, B086: seven pictures in two or four processes that share no folder."""
    evaluator = {"type": "ToyMetric"}
    loader = {
        "batch_size": 1,
        "num_workers": 0,
        "sampler": {"type": "DefaultSampler", "shuffle": False},
        "collate_fn": {"type": "default_collate"},
        "dataset": {"type": "ToyData", "size": 7},
    }
    changes: dict[str, Any] = {"test_dataloader": loader, "test_evaluator": evaluator}
    changes["model"] = {"type": "ToyModel", **PLAIN}
    single = toy_runner(tmp_path / "single", **changes)
    torch.manual_seed(0)
    single.model.head.reset_parameters()
    expected = single.test()["accuracy/top1"]
    weights = single.model.state_dict()

    def work(rank: int) -> tuple[float, int]:
        collect_over_the_group(evaluator)
        runner = toy_runner(tmp_path / "several", **changes)
        runner.model.load_state_dict(weights)
        runner.model = CpuDistributedDataParallel(runner.model, broadcast_buffers=False)
        counted = []
        metric = runner.test_evaluator.metrics[0]
        compute = metric.compute_metrics
        metric.compute_metrics = lambda results: counted.append(len(results)) or compute(results)
        score = runner.test()["accuracy/top1"]
        return score, sum(counted)

    found = in_processes(processes, tmp_path / "group", work)
    assert [score for score, _ in found] == [expected] * processes
    assert [counted for _, counted in found] == [7] + [0] * (processes - 1)
    assert not list(tmp_path.glob("group/home_*/.dist_test"))  # nothing went through a folder


def test_b039_parameters_that_never_learn_are_named_under_find_unused(tmp_path: Path) -> None:
    """The switch silences torch's error, not the warning of this project."""

    def work(rank: int) -> str:
        runner = toy_runner(
            tmp_path / f"run_{rank}",
            model={"type": "ToyModel", "unused": True, **PLAIN},
            custom_hooks=[{"type": "UnusedParameterHook"}],
            train_cfg={"by_epoch": True, "max_epochs": 2},
            default_hooks={"checkpoint": None},
            **dict.fromkeys(("val_dataloader", "val_evaluator", "val_cfg")),
        )
        runner.model = CpuDistributedDataParallel(runner.model, find_unused_parameters=True)
        runner.train()
        return log_of(runner) if rank == 0 else ""  # the other one writes no file

    log = in_processes(2, tmp_path / "group", work)[0]
    assert log.count("got no gradient in the first 3 iteration(s)") == 1
    assert "spare.weight" in log
