"""Measure encodings against no encoding, and RelPosSwin against other libraries' Swin, in turn."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

# One thread unless asked otherwise, decided before torch starts its own.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

import relpos_mm  # noqa: F401  registers encodings and models
from relpos_mm.analysis import benchmark_backbones, benchmark_encodings
from relpos_mm.analysis.benchmark import Row, measure
from relpos_mm.analysis.benchmark_report import record, render, render_page
from relpos_mm.analysis.catalogue import CATALOGUE
from relpos_mm.engine.cli import run_tool
from relpos_mm.engine.errors import UserError

DOC = Path(__file__).resolve().parents[1] / "docs" / "performance"
SUITES = ("encodings", "backbones")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def main() -> None:
    args = parse()
    if args.render:
        print(render(json.loads(args.render.read_text())), end="")
        return
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no CUDA device here; leave the flag out")
    torch.set_num_threads(args.threads)
    device, dtype = torch.device(args.device), DTYPES[args.dtype]
    rows: list[Row] = []
    common = {"dtype": dtype, "device": device}
    pairs = []
    if "encodings" in args.suites:
        pairs.append(benchmark_encodings.pairs(args.only, args.shapes, args.steps, **common))
    if "backbones" in args.suites:
        pairs.append(benchmark_backbones.pairs(args.libraries, args.sizes, args.steps, **common))
    for suite in pairs:
        for pair in suite:
            rows.append(measure(pair, args.rounds, device))
            row = rows[-1]
            print(
                f"{row.suite} {row.size} {row.name} {row.step}: {row.ms:.1f} ms, {row.base} "
                f"{row.base_ms:.1f} ms, ratio {row.ratio:.2f}",
                file=sys.stderr,
                flush=True,
            )
    ids_ms = benchmark_encodings.new_grid_ms(device) if "encodings" in args.suites else None
    result = record(rows, rounds=args.rounds, dtype=args.dtype, device=device, new_grid_ms=ids_ms)
    print(render(result), end="")
    if args.out:
        write(args.out, json.dumps(result, indent=1) + "\n")
    if args.doc:
        write(DOC.with_suffix(".json"), json.dumps(result, indent=1) + "\n")
        write(DOC.with_suffix(".md"), render_page(result))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}")
    parser.add_argument(
        "--only", nargs="+", default=list(CATALOGUE), metavar="NAME", help="encodings"
    )
    parser.add_argument("--shapes", nargs="+", default=["detr", "vit", "window"], metavar="SHAPE")
    parser.add_argument("--libraries", nargs="+", default=list(benchmark_backbones.LIBRARIES))
    parser.add_argument("--sizes", nargs="+", default=["2x224x224", "1x512x683"], metavar="BxHxW")
    parser.add_argument("--steps", nargs="+", default=["inference", "training"])
    parser.add_argument("--rounds", type=int, default=7, help="runs of each side (default: 7)")
    parser.add_argument("--dtype", choices=list(DTYPES), default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the record to this json file")
    parser.add_argument("--doc", action="store_true", help="renew docs/performance.{json,md}")
    parser.add_argument("--render", type=Path, metavar="JSON", help="only print a record's tables")
    args = parser.parse_args()
    args.suites = args.suites or list(SUITES)
    for chosen, known in ((args.suites, SUITES), (args.steps, benchmark_encodings.STEPS)):
        if unknown := set(chosen) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    return args


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"written: {path}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(run_tool(main))
