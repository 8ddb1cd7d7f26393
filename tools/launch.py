"""Run a tool in several processes, on machines with or without bash; see docs/train.md."""

import sys

from relpos_mm.engine.cli import run_tool
from relpos_mm.engine.launch import launch

if __name__ == "__main__":
    sys.exit(run_tool(launch))
