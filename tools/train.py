"""Train a config of any of the three libraries; see docs/train.md."""

import sys

from relpos_mm.engine.cli import run_tool
from relpos_mm.engine.train_cli import train

if __name__ == "__main__":
    sys.exit(run_tool(train))
