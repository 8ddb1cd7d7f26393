"""Evaluate a checkpoint with the config it was trained with; see docs/train.md."""

import sys

from relpos_mm.engine.cli import run_tool
from relpos_mm.engine.eval_cli import evaluate

if __name__ == "__main__":
    sys.exit(run_tool(evaluate))
