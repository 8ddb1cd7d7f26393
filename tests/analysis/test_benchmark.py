"""Benchmarks: what is measured, in what order, and that wrong results get no time."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from relpos_mm.analysis import benchmark, benchmark_backbones, benchmark_encodings
from relpos_mm.analysis.benchmark import Limit, Pair, Row, measure, peak_mib
from relpos_mm.analysis.benchmark_encodings import SHAPES, Shape
from relpos_mm.analysis.benchmark_report import record, render
from relpos_mm.analysis.catalogue import CATALOGUE
from relpos_mm.engine.errors import UserError

CPU = torch.device("cpu")
STEPS = ("inference", "training")
SMALL = {"embed_dims": 12, "depths": (2, 2, 2, 2), "num_heads": (1, 2, 3, 6)}


def pair(run_base, run, limit: Limit | None = None) -> Pair:
    return Pair("encodings", "detr", "none", "rel", "training", run_base, run, 1e-7, limit)


def row(**changes) -> Row:
    values = dict(suite="encodings", size="detr", base="none", name="rel", step="training")
    values |= dict(base_ms=10.0, ms=12.0, ratio=1.2, wall_ratio=1.3, base_mib=4.0, mib=5.0)
    return Row(**{**values, "error": 1e-7, "time_limit": None, "memory_limit": None, **changes})


def test_sides_run_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr(benchmark, "peak_mib", lambda run, device: 1.0)
    measure(pair(lambda: ran.append("A"), lambda: ran.append("B")), 3, CPU)
    assert "".join(ran) == "AB" + "ABABAB"  # warm-up, then in turn


def test_ratio_is_the_median_of_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Base and work get slower together, as on a machine that others use: the ratio stays."""
    times = iter([(10.0, 10.0), (20.0, 30.0), (100.0, 1.0), (200.0, 3.0), (7.0, 1.0), (7.0, 3.0)])
    monkeypatch.setattr(benchmark, "peak_mib", lambda run, device: 1.0)
    monkeypatch.setattr(benchmark, "clock", lambda run, device: next(times))
    result = measure(pair(lambda: None, lambda: None), 3, CPU)
    assert (result.ratio, result.wall_ratio) == (2.0, 3.0)
    assert (result.base_ms, result.ms) == (10.0, 20.0)


def test_peak_counts_what_lives_at_once() -> None:
    def one_after_the_other() -> None:
        for _ in range(3):
            torch.empty(2**18)  # 1 MiB, gone before the next

    def together() -> list[torch.Tensor]:
        return [torch.empty(2**18) for _ in range(3)]

    assert peak_mib(one_after_the_other, CPU) == pytest.approx(1, abs=0.01)
    assert peak_mib(together, CPU) == pytest.approx(3, abs=0.01)


def test_bar_holds_for_time_and_memory() -> None:
    assert row().met is None
    assert row(time_limit=1.2).met is True
    assert row(time_limit=1.1).met is False
    assert row(time_limit=1.2, memory_limit=1.2).met is False


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "tiny", Shape(2, 4, (4, 5), 8))
    monkeypatch.setitem(SHAPES, "tiny_cls", Shape(2, 4, (4, 5), 8, prefix=1))


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", CATALOGUE)
def test_every_encoding_equals_its_reference(name: str) -> None:
    found = list(benchmark_encodings.pairs([name], ["tiny", "tiny_cls"], STEPS))
    assert [(p.size, p.step) for p in found] == [
        (size, step) for size in ("tiny", "tiny_cls") for step in STEPS
    ]
    assert all(0 < p.error < 1e-4 for p in found)
    for p in found:
        p.run_base(), p.run()


@pytest.mark.usefixtures("tiny")
def test_a_wrong_result_gets_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    attend = benchmark_encodings.attend

    def wrong(*args, impl: str, **kwargs):
        out = attend(*args, impl=impl, **kwargs)
        return out if impl == "eager" else out * 1.001

    monkeypatch.setattr(benchmark_encodings, "attend", wrong)
    with pytest.raises(UserError, match="rel at tiny, inference: the result differs"):
        next(benchmark_encodings.pairs(["rel"], ["tiny"]))


@pytest.mark.usefixtures("tiny")
def test_the_training_step_reaches_every_parameter() -> None:
    call = benchmark_encodings.Attention(
        SHAPES["tiny"], benchmark_encodings.encodings_of(SHAPES["tiny"], "irpe_qkv")
    )
    out, *grads = call.training()
    assert [tuple(grad.shape) for grad in grads[:3]] == [tuple(out.shape)] * 3
    parameters = [p for encoding in call.encodings for p in encoding.parameters()]
    assert [g.shape for g in grads[3:]] == [p.shape for p in parameters]
    assert all(grad.abs().max() > 0 for grad in grads)


@pytest.mark.parametrize("library", benchmark_backbones.LIBRARIES)
def test_backbones_of_all_libraries_agree(library: str) -> None:
    notes: list[str] = []
    size = "1x224x224" if benchmark_backbones.LIBRARIES[library][1] == "shrink" else "1x50x70"
    found = list(benchmark_backbones.pairs([library], [size], STEPS, arch=SMALL, note=notes.append))
    assert len(found) + len(notes) in (2, 1)
    assert all(p.error < 1e-4 for p in found)
    assert not notes or (library == "timm" and "not installed" in notes[0])


def test_other_weights_get_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    convert = benchmark_backbones.convert

    def other(state, target: str):
        weights = convert(state, target=target)
        return {k: v * 1.01 if v.is_floating_point() else v for k, v in weights.items()}

    monkeypatch.setattr(benchmark_backbones, "convert", other)
    with pytest.raises(UserError, match="RelPosSwin and mmdet at 1x64x64: the result differs"):
        next(benchmark_backbones.pairs(["mmdet"], ["1x64x64"], STEPS, arch=SMALL))


def test_a_size_that_a_library_cannot_take_is_told() -> None:
    notes: list[str] = []
    sizes = ["1x50x66"]
    assert not list(
        benchmark_backbones.pairs(["torchvision"], sizes, STEPS, arch=SMALL, note=notes.append)
    )
    assert notes == ["left out at 1x50x66: torchvision takes multiples of 4 pixels, not 50 x 66"]
    assert not list(
        benchmark_backbones.pairs(["timm"], ["1x64x96"], STEPS, arch=SMALL, note=notes.append)
    )
    assert "timm has a rule of its own" in notes[1] or "timm is not installed" in notes[1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: benchmark_encodings.pairs(["rel"], ["huge"]), "no shape is called 'huge'"),
        (lambda: benchmark_encodings.pairs(["relative"], ["vit"]), "no encoding is called"),
        (lambda: benchmark_backbones.pairs(["jax"], ["1x64x64"], STEPS), "no library is called"),
        (lambda: benchmark_backbones.pairs(["mmdet"], ["64x64"], STEPS), "a size is written"),
    ],
)
def test_unknown_names_are_refused(call, message: str) -> None:
    with pytest.raises(UserError, match=message):
        next(call())


def test_tables_read_costs_for_encodings_and_speed_ups_for_backbones() -> None:
    rows = [
        row(time_limit=1.1),
        row(suite="backbones", base="mmdet", ratio=0.8, time_limit=1 / 1.12),
    ]
    result = record(rows, rounds=3, dtype="float32", device=CPU, new_grid_ms=0.5)
    table = render(json.loads(json.dumps(result)))
    lines = {
        cell: line for line in table.splitlines() for cell in ("| rel", "| mmdet") if cell in line
    }
    assert "1.20" in lines["| rel"]
    assert "≤ 1.10" in lines["| rel"]
    assert "no" in lines["| rel"]
    assert "1.25" in lines["| mmdet"]
    assert "≥ 1.12" in lines["| mmdet"]
    assert "yes" in lines["| mmdet"]
    assert "0.50 ms" in table


@pytest.fixture
def tool(repo_root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "benchmark_tool", repo_root / "tools/benchmark.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.usefixtures("tiny")
def test_the_tool_prints_a_table_and_writes_a_record(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    out = tmp_path / "deep" / "benchmark.json"
    arguments = f"benchmark.py encodings --only rel --shapes tiny --rounds 1 --out {out}"
    monkeypatch.setattr(sys, "argv", arguments.split())
    tool.main()
    printed = capsys.readouterr().out
    assert printed == render(json.loads(out.read_text()))
    assert printed.count("| rel ") == 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_missing_device_is_one_message(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark.py", "--device", "cuda"])
    with pytest.raises(UserError, match="torch sees no CUDA device"):
        tool.main()
