"""Renew docs/claims.md from docs/claims.yaml and the reports under docs/studies/."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from relpos_mm.engine.cli import run_tool
from relpos_mm.engine.errors import UserError
from relpos_mm.study.claims import load_summaries, read_claims, render_claims

DOCS = Path(__file__).resolve().parents[1] / "docs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether it is up to date")
    args = parser.parse_args()
    page = DOCS / "claims.md"
    text = render_claims(read_claims(DOCS / "claims.yaml"), load_summaries(DOCS / "studies"))
    if args.check:
        if page.read_text(encoding="utf-8") != text:
            raise UserError("docs/claims.md is out of date; run python tools/update_claims.py")
        return
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(run_tool(main))
