"""Make the embedded data set or a small tree in the layout of a real one; check a data set.

python tools/data.py make-mini
python tools/data.py make-tree coco data/coco
python tools/data.py check coco data/coco
"""

from __future__ import annotations

import argparse
import logging
import sys


def main() -> int:
    """Returns 0; 1 when a check found errors; 2 after one message when nothing could be done."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)

    mini = commands.add_parser("make-mini", help="write the embedded data set bdpq")
    mini.add_argument("--out", default="data/bdpq", help="its folder (default: data/bdpq)")
    mini.add_argument("--seed", type=int, default=0, help="seed of the whole set (default: 0)")
    mini.add_argument("--workers", type=_count, default=0, help="processes (default: one per core)")
    mini.add_argument("--force", action="store_true", help="replace the bdpq set that is there")
    mini.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="KNOB=VALUE",
        help="change the recipe, as in train_scenes=100 letter_px=14,30; see docs/data.md",
    )

    tree = commands.add_parser("make-tree", help="write a few pictures in a real set's layout")
    tree.add_argument("layout", choices=("coco", "ade20k", "imagenet"))
    tree.add_argument("path", help="the folder that a config calls data_root; empty or absent")

    check = commands.add_parser("check", help="look for everything that would spoil a run")
    check.add_argument("set", choices=("mini", "coco", "ade20k", "imagenet"))
    check.add_argument("path", help="the folder that a config calls data_root")
    check.add_argument("--config", help="take file names, class names and counts from this config")
    check.add_argument("--mini", action="store_true", help="a smaller set: any counts will do")
    check.add_argument("--limit", type=_some, metavar="N", help="open N pictures per split only")
    check.add_argument(
        "--workers", type=_count, default=0, help="processes (default: one per core)"
    )
    check.add_argument("--json", metavar="FILE", help="write every finding to this file, too")

    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    # Imported late so that --help answers at once.
    if args.command == "check":
        from relpos_mm.data.check.command import run_check
        from relpos_mm.engine.errors import UserError

        try:
            return run_check(args)
        except (UserError, OSError) as error:
            print(f"data.py: {error}", file=sys.stderr)
            return 2
    from relpos_mm.data.bdpq import Knobs, OtherDataInTheWay, make_mini
    from relpos_mm.data.trees import TREES

    try:
        if args.command == "make-mini":
            knobs = Knobs.parse(args.set)
            make_mini(args.out, seed=args.seed, knobs=knobs, workers=args.workers, force=args.force)
        else:
            root = TREES[args.layout](args.path)
            logging.info(
                "wrote %s; `data.py check %s %s --mini` checks it", root, args.layout, root
            )
    except (OtherDataInTheWay, OSError, ValueError) as error:
        print(f"data.py: {error}", file=sys.stderr)
        return 2
    return 0


def _count(text: str) -> int:
    """A whole number from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 on")
    return int(text)


def _some(text: str) -> int:
    """A whole number from 1 on: a check that opens nothing would find nothing."""
    if not _count(text):
        raise argparse.ArgumentTypeError("0 would open nothing; leave it out to open all")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
