"""Render the results of README.md and docs/detr.md, and the examples of docs/probes.md.

Sources: docs/results/ (tools/demo.py --record), docs/studies/ (reports), docs/probes/ (records).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from relpos_mm.engine.errors import UserError
from relpos_mm.probes.page import update_page
from relpos_mm.readme import PAGES, load_records, load_studies, update_results


def main() -> int:
    root = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say what is up to date")
    args = parser.parse_args()
    docs, probes = root / "docs", "docs/probes.md"
    old = {page: (root / page).read_text() for page in (*PAGES, probes)}
    records, studies = load_records(docs / "results"), load_studies(docs / "studies")
    try:
        new = {
            page: update_results(page, old[page], records, studies if page == "README.md" else ())
            for page in PAGES
        }
        new[probes] = update_page(old[probes], docs / "probes")
    except UserError as error:
        print(f"update_readme: {error}", file=sys.stderr)
        return 2
    for page, text in new.items():
        if args.check:
            print(f"{page} is {'up to date' if text == old[page] else 'out of date'}")
        else:
            (root / page).write_text(text)
    return int(args.check and new != old)


if __name__ == "__main__":
    sys.exit(main())
