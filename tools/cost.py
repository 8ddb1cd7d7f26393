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
from relpos_mm.engine.errors import UserError
from relpos_mm.engine.options import count
from relpos_mm.engine.saving import require_writable, write_atomically
from relpos_mm.environment import MissingOps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", nargs="+", metavar="CONFIG")
    parser.add_argument(
        "--shape",
        nargs=2,
        type=count,
        metavar=("H", "W"),
        help="picture (default: 224 224 for classification, 800 1333 for detection, 512 512 for "
        "segmentation)",
    )
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    args = parser.parse_args()
    if args.json:
        require_writable("--json", args.json)
    costs, refused = [], []
    for path in args.configs:
        try:
            costs.append(config_cost(path, args.shape and tuple(args.shape)))
        except (UserError, MissingOps) as error:  # the others' table is worth having
            refused.append(str(error))
    if costs:
        print(cost_table(costs))
        if args.json:
            text = json.dumps([asdict(cost) for cost in costs], indent=1) + "\n"
            write_atomically(args.json, text.encode())
    if refused:
        raise UserError("\n".join(refused))


if __name__ == "__main__":
    sys.exit(run_tool(main))
