"""The whole job on the embedded data: pre-train a classifier, transfer it, train, evaluate, draw.

DETR is one run from scratch.

Every step is one of this project's own commands; the demo prints each before it runs it, so all
of them can be repeated by hand.
"""

from __future__ import annotations

import argparse
import sys

from relpos_mm.demo import DENSE, Demo
from relpos_mm.engine.errors import UserError
from relpos_mm.readme import record_demo


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=sorted(DENSE), default="detection")
    parser.add_argument("--variant", help="position encoding (default: relonly, DETR: irpe_k)")
    parser.add_argument("--work-dir", default="work_dirs/demo", help="where everything is written")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--serial", action="store_true", help="run one training at a time (default: two at once)"
    )
    parser.add_argument(
        "--cfg-options", nargs="+", default=(), metavar="KEY=VALUE", help="for every training"
    )
    parser.add_argument("--record", metavar="DIR", help="also keep the results as DIR/TASK.json")
    args = parser.parse_args()
    try:
        demo = Demo(
            args.task,
            args.variant,
            args.work_dir,
            args.seed,
            parallel=not args.serial,
            cfg_options=args.cfg_options,
        )
        demo.run()
        if args.record:
            print(f"recorded in {record_demo(demo.runs(), args.task, args.record)}")
    except UserError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
