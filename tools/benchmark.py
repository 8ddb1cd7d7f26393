"""Measure RelPosSwin against other libraries' Swin, and every encoding against none, in turn."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

# One thread unless asked otherwise, decided before torch starts its own.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The profiler, which counts memory, announces each start and stop.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch
from mmengine.logging import MMLogger

import relpos_mm  # noqa: F401  registers encodings and models
from relpos_mm.analysis import (
    benchmark_backbones,
    benchmark_calls,
    benchmark_steps,
    benchmark_trunk,
)
from relpos_mm.analysis.benchmark import (
    DTYPES,
    STEPS,
    SUITES,
    LeftOut,
    Meter,
    Pair,
    Row,
    Setting,
)
from relpos_mm.analysis.benchmark_cells import Scaling, counts, scalings
from relpos_mm.analysis.benchmark_page import read_record, require_whole, write_page
from relpos_mm.analysis.benchmark_parity import parity
from relpos_mm.analysis.benchmark_plot import plot
from relpos_mm.analysis.benchmark_record import Start, dump, make_record
from relpos_mm.analysis.benchmark_report import render
from relpos_mm.engine.cli import run_tool
from relpos_mm.engine.errors import UserError
from relpos_mm.engine.options import count, seconds
from relpos_mm.models.alignment import InterpolatedEmbeddingWarning

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
Found = Pair | Scaling | LeftOut
# What narrows a suite.
PARTS = ("only", "shapes", "libraries", "sizes", "configs", "steps", "dtypes")


def main() -> None:
    args = parse()
    page = DOCS / "performance.json"
    old = read_record(page) if args.doc and page.is_file() else None
    record = read_record(args.render) if args.render else run(args)
    print(render(record), end="")
    if args.out:
        write(args.out, dump(record))
    if args.plot:
        plot(record, args.plot)
    if wrong := [one["what"] for one in record["left_out"] if one["wrong"]]:
        raise UserError(f"results differ from their reference: {'; '.join(wrong)}")
    if args.doc:
        require_whole(record)
        write_page(DOCS, old, record)
        tell(f"renewed: {page}")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure what the arguments ask for."""
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no CUDA device here; leave the flag out")
    torch.set_num_threads(args.threads)
    MMLogger.get_current_instance().setLevel("WARNING")  # conversions tell what they drop
    warnings.simplefilter("ignore", InterpolatedEmbeddingWarning)
    start, device = Start(), torch.device(args.device)
    more: dict[str, Any] = {}
    if "parity" in args.suites:
        more["parity"] = parity(ROOT)
    meter = Meter(args.rounds, args.seconds, device)
    rows: list[Row] = []
    cells: list[Scaling] = []
    left_out: list[LeftOut] = []
    measured = {"parity"} & set(args.suites)
    for suite, found in chosen(args, device):
        if isinstance(found, LeftOut):
            left_out.append(replace(found, suite=suite))
            tell(f"left out: {found.what}: {found.why}")
            continue
        measured.add(suite)
        if isinstance(found, Scaling):
            cells.append(found)
            tell(f"{found.processes} cells of {found.config}: {found.times:.2f} times one's steps")
            continue
        row = meter.measure(found)
        rows.append(row)
        tell(
            f"{row.suite} {row.size} {row.dtype} {row.step} {row.name}: {row.ms:.1f} ms, "
            f"{row.base} {row.base_ms:.1f} ms, ratio {row.ratio:.3f}"
        )
    if cells:
        more["cells"] = [asdict(cell) for cell in cells]
    if "calls" in args.suites:
        more["new_grid_ms"] = benchmark_calls.new_grid_ms(device)
        if device.type == "cpu" and "vitdet" in args.shapes:
            more["largest_tensor"] = benchmark_calls.largest_tensor("decomposed", "vitdet")
    return make_record(
        rows,
        left_out,
        suites=[suite for suite in SUITES if suite in measured],
        narrowed=args.narrowed,
        device=device,
        start=start,
        **more,
    )


def chosen(args: argparse.Namespace, device: torch.device) -> Iterator[tuple[str, Found]]:
    """All that the chosen suites measure, with the suite's name."""
    for name, found in suites(args, device):
        yield from ((name, one) for one in found)


def suites(args: argparse.Namespace, device: torch.device) -> Iterator[tuple[str, Iterator[Found]]]:
    """The chosen suites by name."""
    setting = Setting(args.steps, args.dtypes, device)
    if "backbones" in args.suites:
        yield "backbones", benchmark_backbones.pairs(args.libraries, args.sizes, setting)
    if "trunk" in args.suites:
        yield "trunk", benchmark_trunk.pairs(args.only, args.sizes, setting)
    if "steps" in args.suites and device.type == "cpu":  # it compares two ways of a CPU
        yield "steps", benchmark_steps.pairs(args.configs, args.steps)
    if "cells" in args.suites and device.type == "cpu":
        turn = args.seconds / args.rounds
        yield "cells", scalings(args.configs, counts(), rounds=args.rounds, seconds=turn)
    if "calls" in args.suites:
        yield "calls", benchmark_calls.pairs(args.only, args.shapes, setting)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="encodings")
    parser.add_argument(
        "--shapes", nargs="+", default=list(benchmark_calls.SHAPES), metavar="SHAPE"
    )
    parser.add_argument("--libraries", nargs="+", metavar="NAME", help="to compare backbones with")
    parser.add_argument(
        "--sizes",
        nargs="+",
        default=["2x224x224", "1x512x683", "1x800x1333"],
        metavar="BxHxW",
        help="pictures (default: %(default)s; unless names are given, large ones have fewer rows)",
    )
    parser.add_argument(
        "--configs",
        nargs="+",
        default=benchmark_steps.MINI,
        metavar="CONFIG",
        help="for `steps` and `cells`",
    )
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument("--rounds", type=count, default=5, help="runs of each side (default: 5)")
    parser.add_argument(
        "--seconds", type=seconds, default=15, help="a row ends after these (default: 15)"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=count, default=1)
    parser.add_argument("--out", type=Path, help="write the record to this json file")
    parser.add_argument("--plot", type=Path, help="draw the curves into this svg or png file")
    parser.add_argument(
        "--doc", action="store_true", help="renew docs/performance.{json,md}, or these suites of it"
    )
    parser.add_argument(
        "--render", type=Path, metavar="JSON", help="show a record instead of measuring"
    )
    args = parser.parse_args()
    if unknown := set(args.suites) - set(SUITES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(SUITES)}")
    if args.suites and args.render:
        parser.error("--render shows all suites of a record: name none")
    args.suites = args.suites or list(SUITES)
    args.narrowed = [f"--{part}" for part in PARTS if _narrows(args, parser, part)]
    if args.doc and args.narrowed:
        parser.error(f"--doc renews whole suites: leave {', '.join(args.narrowed)} out")
    if args.doc and args.device != "cpu":
        parser.error("--doc renews the page of a CPU: leave --device out")
    return args


def _narrows(args: argparse.Namespace, parser: argparse.ArgumentParser, part: str) -> bool:
    given, usual = getattr(args, part), parser.get_default(part)
    return given is not None and set(given) != set(usual or ())


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    tell(f"written: {path}")


if __name__ == "__main__":
    sys.exit(run_tool(main))
