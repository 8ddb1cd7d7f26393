"""Render README.md's results and the examples of docs/probes.md.

Sources: docs/results/ (tools/demo.py --record), docs/studies/ (reports), docs/probes/ (records).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from relpos_mm.engine.errors import UserError
from relpos_mm.probes.page import update_page
from relpos_mm.readme import load_records, load_studies, update_readme


def main() -> int:
    root = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether it is up to date")
    args = parser.parse_args()
    docs = root / "docs"
    readme, probes = root / "README.md", docs / "probes.md"
    old = {page: page.read_text() for page in (readme, probes)}
    try:
        new = {
            readme: update_readme(
                old[readme], load_records(docs / "results"), load_studies(docs / "studies")
            ),
            probes: update_page(old[probes], docs / "probes"),
        }
    except UserError as error:
        print(f"update_readme: {error}", file=sys.stderr)
        return 2
    for page, text in new.items():
        if args.check:
            state = "up to date" if text == old[page] else "out of date"
            print(f"{page.relative_to(root)} is {state}")
        else:
            page.write_text(text)
    return int(args.check and new != old)


if __name__ == "__main__":
    sys.exit(main())
