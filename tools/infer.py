"""Predict on pictures without annotations and draw the results; see docs/train.md."""

import sys

from relpos_mm.engine.cli import run_tool
from relpos_mm.engine.infer_cli import infer

if __name__ == "__main__":
    sys.exit(run_tool(infer))
