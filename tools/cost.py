"""Count what the encodings of configs cost: parameters, multiply-adds, memory, kernels."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

import relpos_mm  # noqa: F401  registers encodings and models
from relpos_mm.analysis.cost import config_cost
from relpos_mm.analysis.cost_report import cost_table
from relpos_mm.engine.cli import run_tool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", nargs="+", metavar="CONFIG")
    parser.add_argument(
        "--shape",
        nargs=2,
        type=_pixels,
        metavar=("H", "W"),
        help="picture (default: 224 224 for classification, 800 1333 for detection, 512 512 for "
        "segmentation)",
    )
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    args = parser.parse_args()
    if args.json:
        try:
            args.json.parent.mkdir(parents=True, exist_ok=True)
            args.json.open("a").close()
        except OSError as error:
            parser.error(f"--json: {args.json}: {error.strerror}")
    costs = [config_cost(path, args.shape and tuple(args.shape)) for path in args.configs]
    print(cost_table(costs))
    if args.json:
        args.json.write_text(json.dumps([asdict(cost) for cost in costs], indent=1) + "\n")


def _pixels(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


if __name__ == "__main__":
    sys.exit(run_tool(main))
