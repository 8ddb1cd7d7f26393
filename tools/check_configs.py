"""Check every config before it costs a day: names, class counts, leaves, protocols, optimiser."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import relpos_mm  # noqa: F401  registers what the configs name
from relpos_mm.checks import check_tree

CONFIGS = Path(__file__).resolve().parent.parent / "configs"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "paths", nargs="*", type=Path, default=[CONFIGS], help="folders or files (default: configs)"
    )
    problems = []
    for path in parser.parse_args().paths:
        try:
            problems += check_tree(path)
        except FileNotFoundError as error:
            parser.error(str(error))
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(problems)} problem(s)")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
