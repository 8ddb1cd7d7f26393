"""Renew the generated parts of docs/encodings/: cost tables, index and, if asked, pictures."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import relpos_mm  # noqa: F401  registers encodings and models
from relpos_mm.analysis.pages import missing, rendered, write_costs, write_pictures
from relpos_mm.engine.cli import run_tool
from relpos_mm.engine.errors import UserError

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "encodings"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--costs", action="store_true", help="count anew (a minute), then render")
    parser.add_argument("--pictures", action="store_true", help="draw anew")
    parser.add_argument("--check", action="store_true", help="only say whether all is up to date")
    args = parser.parse_args()
    if args.costs:
        write_costs(FOLDER)
    if args.pictures:
        write_pictures(FOLDER)
    texts = rendered(FOLDER)
    old = [path for path, text in texts.items() if path.read_text(encoding="utf-8") != text]
    if left := missing(FOLDER):
        raise UserError(f"docs/encodings/ has no page for {', '.join(left)}")
    if args.check and old:
        names = ", ".join(path.name for path in old)
        raise UserError(f"out of date: {names}; run python tools/update_encodings.py")
    for path in old:
        path.write_text(texts[path], encoding="utf-8")
    print(f"{len(texts)} pages, {len(old)} written")


if __name__ == "__main__":
    sys.exit(run_tool(main))
