"""Processes without GPUs: gloo, and BN in place of SyncBN under the same names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import Config
from torch import distributed, nn

from relpos_mm.engine import CpuDistributedDataParallel
from relpos_mm.engine.distributed import prepare_processes

from .toys import ToyModel, log_of, toy_runner


def test_b040_syncbn_becomes_bn_with_the_same_names(
    single_process_group: None, capfd: pytest.CaptureFixture[str]
) -> None:
    model = ToyModel(norm="SyncBatchNorm")
    names = set(model.state_dict())
    wrapped = CpuDistributedDataParallel(model)
    assert set(wrapped.module.state_dict()) == names
    assert not any(isinstance(m, nn.SyncBatchNorm) for m in wrapped.modules())
    batch = {"inputs": torch.randn(2, 3, 16, 16), "label": torch.tensor([0, 1])}
    losses = wrapped(**batch, mode="loss")  # SyncBN raises on CPU here
    assert torch.isfinite(losses["loss_cls"])


def test_b040_one_process_switches_too_and_the_files_fit_both_ways(tmp_path: Path) -> None:
    runner = toy_runner(tmp_path / "a", model={"type": "ToyModel", "norm": "SyncBatchNorm"})
    runner.train()
    assert "reverted to BatchNormXd" in log_of(runner)
    saved = torch.load(tmp_path / "a" / "epoch_2.pth", weights_only=False)["state_dict"]
    ToyModel(norm="SyncBatchNorm").load_state_dict(saved)
    ToyModel(norm="BatchNorm2d").load_state_dict(saved)


def test_evaluation_starts_with_the_first_process_statistics(
    single_process_group: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapped = CpuDistributedDataParallel(ToyModel())
    sent: list[Any] = []
    monkeypatch.setattr(distributed, "broadcast", lambda tensor, src: sent.append((tensor, src)))
    wrapped.train()
    assert not sent
    wrapped.eval()
    assert [src for _, src in sent] == [0] * len(list(wrapped.module.buffers()))


def test_a_single_process_needs_no_group() -> None:
    cfg = Config({"launcher": "none"})
    prepare_processes(cfg)
    assert "model_wrapper_cfg" not in cfg
    assert not distributed.is_initialized()


def test_the_wrapper_keeps_the_configs_settings(
    single_process_group: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("WORLD_SIZE", "1")
    cfg = Config({"launcher": "pytorch", "find_unused_parameters": True})
    prepare_processes(cfg)
    assert cfg.model_wrapper_cfg.type == "CpuDistributedDataParallel"
    assert cfg.model_wrapper_cfg.find_unused_parameters is True
