"""The page of a benchmark: it says what its record says, and nothing else."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from relpos_mm.analysis import benchmark_calls, benchmark_parity
from relpos_mm.analysis.attention_call import Shape
from relpos_mm.analysis.benchmark import SUITES, LeftOut, Row
from relpos_mm.analysis.benchmark_plot import plot
from relpos_mm.analysis.benchmark_record import Start, dump, make_record
from relpos_mm.analysis.benchmark_report import render
from relpos_mm.analysis.benchmark_targets import targets
from relpos_mm.analysis.benchmark_trunk import ADDITIVE
from relpos_mm.engine.errors import UserError

from .rows import row

ADDED = [
    row(suite="trunk", size="2x224x224", base="noenc", name=name, ratio=1.01, time_limit=1.03)
    for name in ADDITIVE
]
BACKBONE = row(
    suite="backbones",
    size="1x512x683",
    base="mmdet",
    name="RelPosSwin",
    ratio=0.8,
    ratio_low=0.5,
    ratio_high=1.0,
    time_limit=1 / 1.12,
)
CELLS = {"config": "mini/cls", "processes": 2, "alone": 3.0, "together": 5.7, "times": 1.9}


def record_of(
    *rows: Row,
    left_out: tuple[LeftOut, ...] = (),
    suites: tuple[str, ...] = SUITES,
    narrowed: tuple[str, ...] = (),
    **more: Any,
) -> dict[str, Any]:
    where = {"device": torch.device("cpu"), "start": Start(), "narrowed": narrowed}
    return json.loads(dump(make_record(rows, left_out, suites=suites, **where, **more)))


def line_with(text: str, words: str) -> str:
    (line,) = [line for line in text.splitlines() if words in line]
    return line


def test_the_page_is_that_of_its_record(repo_root: Path) -> None:
    record = json.loads((repo_root / "docs/performance.json").read_text(encoding="utf-8"))
    page = (repo_root / "docs/performance.md").read_text(encoding="utf-8")
    assert page == render(record), "render it: tools/benchmark.py --doc --render FILE"


def test_a_record_has_a_line_per_row_and_keeps_its_numbers() -> None:
    made = record_of(row(ratio=1.23456), row(name="rel"), new_grid_ms=0.123456)
    assert made["rows"][0]["ratio"] == 1.235
    assert made["new_grid_ms"] == 0.1235
    assert sum('"suite"' in line for line in dump(made).splitlines()) == 2
    assert json.loads(dump(made)) == made


def test_backbones_are_speed_ups_and_encodings_are_costs() -> None:
    page = render(record_of(BACKBONE, row(name="irpe_k", time_limit=1.1)))
    assert re.search(r"\| 1x512x683 +\| mmdet +\| 1\.25 \(1\.00 to 2\.00\)", page)
    assert re.search(r"\| `irpe_k` +\| 1\.20 \(1\.10 to 1\.30\)", page)


def test_whole_steps_are_speed_ups_by_config() -> None:
    names = {"suite": "steps", "size": "mini/cls", "base": "default", "name": "onednn"}
    page = render(record_of(row(**names, ratio=0.8, ratio_low=0.5, ratio_high=1.0)))
    assert re.search(r"\| `mini/cls` +\| 1\.25 \(1\.00 to 2\.00\)", page)


def test_cells_side_by_side_have_a_line_each() -> None:
    page = render(record_of(cells=[CELLS]))
    assert re.search(r"\| `mini/cls` +\| +2 \| +3\.00 \| +5\.70 \| +1\.90 \|", page)


@pytest.mark.parametrize(
    ("record", "key", "met"),
    [
        (record_of(BACKBONE), "backbone_float32_training", True),
        (record_of(row(time_limit=1.1)), "call_irpe_k_training", False),
        (record_of(*ADDED), "additive", True),
        (record_of(*ADDED[:-1], row(**{**vars(ADDED[-1]), "ratio": 1.04})), "additive", False),
        (record_of(cells=[CELLS]), "cells", True),
        (record_of(cells=[{**CELLS, "times": 1.7}]), "cells", False),
        (record_of(new_grid_ms=1.9), "new_grid", True),
        (record_of(new_grid_ms=2.1), "new_grid", False),
        (record_of(largest_tensor={"mib": 3.0, "matrix_mib": 64.0}), "no_matrix", True),
        (record_of(largest_tensor={"mib": 64.0, "matrix_mib": 64.0}), "no_matrix", False),
        (record_of(parity={"passed": 9, "failed": 0, "skipped": 2}), "parity", True),
        (record_of(parity={"passed": 0, "failed": 0, "skipped": 9}), "parity", False),
    ],
)
def test_targets_are_judged(record: dict[str, Any], key: str, met: bool) -> None:
    (found,) = targets(record, [Row(**one) for one in record["rows"]])
    assert (found.key, found.met) == (key, met)
    page = render(record)
    assert f"## Targets: {int(met)} of 1 met" in page
    assert line_with(page, f"| {found.what}").split("|")[-2].strip() == ("yes" if met else "**no**")


def test_what_was_left_out_is_told() -> None:
    page = render(record_of(row(), left_out=(LeftOut("timm at 1x5x5", "it cannot"),)))
    assert "- timm at 1x5x5: it cannot." in page


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_curves_are_drawn(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / "deep" / f"curves.{suffix}"
    rows = [row(size=size, name=name) for size in ("window", "detr") for name in ("rel", "peg")]
    plot(record_of(*rows, *ADDED), file)
    content = file.read_bytes()
    assert content.startswith(b"<?xml" if suffix == "svg" else b"\x89PNG")
    if suffix == "svg":
        assert b"tokens per call" in content
        before = content
        plot(record_of(*rows, *ADDED), file)
        assert file.read_bytes() == before  # no dates, no random names


def test_failing_parity_ends_the_run(monkeypatch: pytest.MonkeyPatch, repo_root: Path) -> None:
    assert all((repo_root / test).is_file() for test in benchmark_parity.TESTS)
    monkeypatch.setattr(benchmark_parity, "TESTS", ("tests/no_such_test.py",))
    with pytest.raises(UserError, match="so nothing is measured"):
        benchmark_parity.parity(repo_root)


def test_the_tool_prints_a_page_and_renders_it_again(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setitem(benchmark_calls.SHAPES, "tiny", Shape(2, 4, (4, 5), 8))
    out = tmp_path / "deep" / "benchmark.json"
    arguments = f"calls --only rel --shapes tiny --dtypes float32 --rounds 1 --out {out}"
    monkeypatch.setattr(sys, "argv", ["benchmark.py", *arguments.split()])
    tool.main()
    printed = capsys.readouterr().out
    assert printed.count("| calls | tiny ") == 2
    monkeypatch.setattr(sys, "argv", ["benchmark.py", "--render", str(out)])
    tool.main()
    assert capsys.readouterr().out == printed


def test_wrong_results_are_the_tools_exit_code(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "record.json"
    file.write_text(dump(record_of(left_out=(LeftOut("rel", "it differs", wrong=True),))))
    monkeypatch.setattr(sys, "argv", ["benchmark.py", "--render", str(file)])
    with pytest.raises(UserError, match="results differ from their reference: rel"):
        tool.main()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_missing_device_is_one_message(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark.py", "--device", "cuda"])
    with pytest.raises(UserError, match="torch sees no CUDA device"):
        tool.main()


@pytest.mark.parametrize(
    "flags",
    ["--rounds 0", "--rounds -2", "--threads 0", "--seconds 0", "--seconds -1", "--seconds nan"],
)
def test_nothing_is_measured_zero_times(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, flags: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark.py", "calls", *flags.split()])
    with pytest.raises(SystemExit, match="2"):
        tool.main()
