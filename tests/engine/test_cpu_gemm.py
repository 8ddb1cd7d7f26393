"""Which library multiplies on the CPU: the probe, the choice, and who keeps to it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import Config
from torch import distributed

from relpos_mm.engine import UserError, cpu_gemm
from relpos_mm.engine.checked_runner import CheckedRunner
from relpos_mm.engine.checkpoints import read_checkpoint
from relpos_mm.engine.cli import load_config
from relpos_mm.engine.cpu_gemm import MIN_SPEEDUP, Probe, probe, settle_wish, take_route
from relpos_mm.engine.result import config_sha256
from relpos_mm.engine.resuming import continue_as_before

from .processes import in_processes
from .toys import log_of, toy_runner

FAST, SLOW = Probe(0.4, 0.4, 2 * MIN_SPEEDUP), Probe(0.4, 0.4, 1.0)
COARSE = Probe(200.0, 0.4, 5.0)  # as a CPU with AMX: fast, in bfloat16


@pytest.fixture(autouse=True)
def default_route_afterwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(cpu_gemm.VARIABLE, raising=False)
    yield
    cpu_gemm.use_onednn(False)


def machine(monkeypatch: pytest.MonkeyPatch, found: Probe) -> None:
    monkeypatch.setattr(cpu_gemm, "probe", lambda: found)


def is_onednn() -> bool:
    return torch.get_float32_matmul_precision() == "medium"


def test_the_probe_measures_this_machine_and_leaves_it_as_it_was() -> None:
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    found = probe.__wrapped__()
    assert torch.equal(torch.rand(1), expected), "the run's own random numbers must not move"
    assert not is_onednn()
    assert 0 < found.default_error < 1
    assert found.speedup > 0.2
    assert probe() is probe(), "once per process"


def test_the_probe_sees_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    def coarse(*factors: torch.Tensor) -> torch.Tensor:
        if is_onednn() and factors[0].dtype == torch.float32:
            factors = tuple(factor.bfloat16().float() for factor in factors)
        return torch.matmul(*factors)

    def products() -> Iterator[Any]:
        return ((coarse, factors[:2], terms) for op, factors, terms in real() if op == torch.matmul)

    real = cpu_gemm._products
    monkeypatch.setattr(cpu_gemm, "_products", products)
    found = probe.__wrapped__()
    assert found.error > 50
    assert not found.accurate
    assert found.default_error < 1


def test_the_probe_sees_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        return x * torch.nan if is_onednn() and x.dtype == torch.float32 else x

    monkeypatch.setattr(cpu_gemm, "_products", lambda: iter([(broken, (torch.ones(2),), 1)]))
    assert not probe.__wrapped__().accurate


@pytest.mark.parametrize(
    ("wish", "found", "name", "why"),
    [
        ("auto", FAST, "onednn", "2.80 times as fast"),
        ("auto", SLOW, "default", "1.00 times as fast"),
        ("auto", COARSE, "default", "does not compute in float32"),
        ("onednn", SLOW, "onednn", "as set; it is 1.00 times"),
        ("default", FAST, "default", "as set"),
    ],
)
def test_choice(
    wish: str, found: Probe, name: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, found)
    route = take_route(wish, gpu=False)
    assert route.name == name
    assert why in route.why
    assert is_onednn() == (name == "onednn")


def test_bfloat16_is_never_taken_for_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, COARSE)
    with pytest.raises(UserError, match="does not compute in float32 on this CPU"):
        take_route("onednn", gpu=False)
    assert not is_onednn()


def test_a_gpu_run_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_gemm, "probe", lambda: pytest.fail("probed"))
    assert take_route("auto", gpu=True).name is None


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [(FAST, SLOW, "onednn"), (SLOW, FAST, "default"), (FAST, COARSE, "default")],
)
def test_processes_agree(first: Probe, second: Probe, name: str, tmp_path: Path) -> None:
    def work(rank: int) -> tuple[str | None, bool]:
        cpu_gemm.probe = lambda: (first, second)[distributed.get_rank()]  # in a forked process
        return take_route("auto", gpu=False).name, is_onednn()

    assert in_processes(2, tmp_path, work) == [(name, name == "onednn")] * 2


def test_wish_of_environment_and_config(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = Config({})
    settle_wish(cfg)
    assert cfg.cpu_gemm == "auto"
    cfg = Config({"cpu_gemm": "onednn"})
    settle_wish(cfg)
    assert cfg.cpu_gemm == "onednn"
    monkeypatch.setenv(cpu_gemm.VARIABLE, "default")
    settle_wish(cfg)
    assert cfg.cpu_gemm == "default"
    monkeypatch.setenv(cpu_gemm.VARIABLE, "mkl")
    with pytest.raises(UserError, match=r"RELPOS_MM_CPU_GEMM must be 'auto'.*got 'mkl'"):
        settle_wish(cfg)


def test_a_wrong_option_is_refused(repo_root: Path) -> None:
    path = str(repo_root / "configs/mini/cls_swin_t_relonly.py")
    assert load_config(path, {"cpu_gemm": "onednn"}).cpu_gemm == "onednn"
    with pytest.raises(UserError, match=r"cpu_gemm must be .* got 'bf16'"):
        load_config(path, {"cpu_gemm": "bf16"})


def test_log_result_and_checkpoint_say_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, FAST)
    hooks = [{"type": "StartReportHook"}, {"type": "ResultHook"}]
    runner = toy_runner(tmp_path, CheckedRunner, custom_hooks=hooks, cfg={"cpu_gemm": "auto"})
    runner.train()
    assert re.search(
        r"float32 products +onednn \(cpu_gemm auto\): oneDNN is 2\.80 times", log_of(runner)
    )
    record = json.loads((tmp_path / "result.json").read_text())
    assert record["cpu_gemm"]["name"] == "onednn"
    assert record["cpu_gemm"]["wish"] == "auto"
    assert read_checkpoint(tmp_path / "epoch_2.pth")["meta"]["cpu_gemm"] == "onednn"
    assert config_sha256(Config({"a": 1, "cpu_gemm": "auto"})) == config_sha256(Config({"a": 1}))


@pytest.mark.parametrize(
    ("was", "wish", "now"),
    [
        ({"cpu_gemm": "onednn"}, "auto", "onednn"),
        ({"cpu_gemm": "default"}, "auto", "default"),
        ({}, "auto", "default"),  # checkpoints of other programs
        ({"cpu_gemm": None}, "auto", "auto"),  # trained on a GPU
        ({"cpu_gemm": "onednn"}, "onednn", "onednn"),
    ],
)
def test_a_resumed_run_keeps_the_route(was: dict[str, Any], wish: str, now: str) -> None:
    cfg = Config({"cpu_gemm": wish, "train_cfg": {}})
    assert continue_as_before(cfg, "a.pth", was, allowed=False) is None
    assert cfg.cpu_gemm == now


def test_another_route_is_refused_unless_wanted() -> None:
    cfg = Config({"cpu_gemm": "default", "train_cfg": {}})
    with pytest.raises(UserError, match=r"a\.pth was trained with cpu_gemm='onednn', now .*'def"):
        continue_as_before(cfg, "a.pth", {"cpu_gemm": "onednn"}, allowed=False)
    assert continue_as_before(cfg, "a.pth", {"cpu_gemm": "onednn"}, allowed=True) is None
    assert cfg.cpu_gemm == "default"


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
def test_the_same_seed_gives_the_same_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, SLOW)
    losses = []
    for run in range(2):
        runner = toy_runner(tmp_path / str(run), CheckedRunner, cfg={"cpu_gemm": "onednn"})
        runner.train()
        losses.append(runner.message_hub.get_scalar("train/loss").data[0])
    assert (losses[0] == losses[1]).all()
