"""bfloat16 training on CPU, and float32 where mmcv's ops need it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from torch import nn

from relpos_mm.engine import UserError
from relpos_mm.engine.precision import as_float32, guard_float32_ops
from relpos_mm.engine.train_cli import use_amp

from .toys import log_of, toy_runner


def test_forward_runs_in_bfloat16_and_weights_stay_float32(tmp_path: Path) -> None:
    wrapper = {
        "type": "Bfloat16OptimWrapper",
        "constructor": "PositionOptimConstructor",
        "optimizer": {"type": "AdamW", "lr": 0.001, "weight_decay": 0.05},
    }
    runner = toy_runner(tmp_path, optim_wrapper=wrapper)
    seen = []
    runner.model.head.register_forward_hook(lambda *args: seen.append(args[-1].dtype))
    runner.train()
    assert seen.count(torch.bfloat16) == 8  # every iteration; validations run in float32
    assert {p.dtype for p in runner.model.parameters()} == {torch.float32}
    assert "AdamW, bfloat16" in log_of(runner)


def test_amp_flag_honours_the_configs_type(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = Config({"optim_wrapper": {"type": "OptimWrapper"}})
    use_amp(cfg)
    assert cfg.optim_wrapper.type == "Bfloat16OptimWrapper"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    old_gpu = Config({"optim_wrapper": {"type": "OptimWrapper"}})
    use_amp(old_gpu)
    assert dict(old_gpu.optim_wrapper) == {
        "type": "AmpOptimWrapper",
        "dtype": "float16",
        "loss_scale": "dynamic",
    }
    asked = Config({"optim_wrapper": {"dtype": "float16", "loss_scale": 512.0}})
    use_amp(asked)
    assert asked.optim_wrapper.loss_scale == 512.0


def test_float16_without_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"dtype='float16' cannot be used here"):
        use_amp(Config({"optim_wrapper": {"dtype": "float16"}}))


def test_rois_and_proposals_see_float32() -> None:
    class Extractor(nn.Module):
        roi_layers = ()

        def forward(self, feats: tuple[torch.Tensor, ...], rois: torch.Tensor) -> list[torch.dtype]:
            return [feats[0].dtype, rois.dtype]

    class ProposalHead(nn.Module):
        def loss_and_predict(self) -> None: ...

        def forward(self, x: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
            return [x], [x]

    half = torch.ones(2, dtype=torch.bfloat16)
    model = nn.ModuleList([Extractor(), ProposalHead()])
    guard_float32_ops(model)
    assert model[0]((half,), half) == [torch.float32, torch.float32]
    assert [part[0].dtype for part in model[1](half)] == [torch.float32, torch.float32]


def test_other_types_pass_unchanged() -> None:
    node = {"ids": torch.ones(1, dtype=torch.int64), "names": ("a", None), "x": [torch.ones(1)]}
    assert as_float32(node) == node
