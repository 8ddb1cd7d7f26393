"""Plan, run, watch and report a study of position encodings; see docs/study.md."""

import sys

from relpos_mm.study.cli import main

if __name__ == "__main__":
    sys.exit(main())
