"""Show on trained models how an encoding works; see docs/probes.md."""

import sys

from relpos_mm.engine.cli import run_tool
from relpos_mm.probes.cli import main

if __name__ == "__main__":
    sys.exit(run_tool(main))
