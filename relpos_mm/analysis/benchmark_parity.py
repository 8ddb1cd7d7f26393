"""Whether every path still gives the numbers of the public implementations, asked before timing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from relpos_mm.engine.errors import UserError

# Tests of the repository that hold outputs and gradients to stored numbers.
TESTS = (
    "tests/encodings/test_golden.py",
    "tests/encodings/test_contextual_rpe_golden.py",
    "tests/models/test_golden_swin.py",
    "tests/models/test_sliced.py",
)


def parity(root: Path) -> dict[str, int]:
    """Run the tests and count them.

    Returns:
        How many ``passed``, ``failed`` and were ``skipped`` (numbers that are not at hand).

    Raises:
        UserError: One of them fails: what gives wrong numbers has no time.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    last = done.stdout.strip().splitlines()[-1:]
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", "".join(last))}
    if done.returncode:
        raise UserError(
            f"tests against stored numbers fail, so nothing is measured: {' '.join(command[1:])}\n"
            f"{done.stdout[-2000:]}"
        )
    return {word: counts.get(word, 0) for word in ("passed", "failed", "skipped")}
