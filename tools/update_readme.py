"""Render README.md's results: docs/results/ (tools/demo.py --record), docs/studies/ (reports)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from relpos_mm.engine.errors import UserError
from relpos_mm.readme import load_records, load_studies, update_readme


def main() -> int:
    root = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether it is up to date")
    args = parser.parse_args()
    readme = root / "README.md"
    old = readme.read_text()
    try:
        new = update_readme(
            old, load_records(root / "docs" / "results"), load_studies(root / "docs" / "studies")
        )
    except UserError as error:
        print(f"update_readme: {error}", file=sys.stderr)
        return 2
    if args.check:
        print("README.md is up to date" if new == old else "README.md is out of date")
        return int(new != old)
    readme.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
