"""The shell commands that README and docs show, and those among them that no test can run."""

from __future__ import annotations

import re
from pathlib import Path

_REAL = "tests/test_real_configs.py runs the config on a small tree of its layout"

# Command -> why no test runs it. Everything else in a ```bash block is run as it stands.
NOT_RUN = {
    "make demo": "ten minutes; its steps run one by one, and tests/test_demo.py runs it shortened",
    "make test": "it is what runs this test",
    "python tools/study.py run sign_flip_mini": "hours; tests/study/test_smoke.py runs a small one",
}
# Commands with these words need what neither CI nor a reader's laptop has.
NOT_RUN_WORDS = {
    "pip install": "changes the environment that the tests run in; make test has just done it",
    "configs/cls_swin_t": f"needs ImageNet; {_REAL}",
    "configs/cascade_swin_t": f"needs COCO; {_REAL}",
}

# Documents whose commands need files of their own, which another test makes for them.
RUN_ELSEWHERE = {"transfer.md": "tests/transfer/test_docs.py"}


def documents(root: Path) -> list[Path]:
    """README and every page of docs/."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def commands(document: Path) -> list[str]:
    """Commands of the document's bash blocks, one per logical line, comments left out."""
    found = []
    for block in re.findall(r"^```bash\n(.*?)^```", document.read_text(), re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            command = re.sub(r"\s+#.*$|^#.*$", "", line).strip()
            if command:
                found.append(re.sub(r"\s+", " ", command))
    return found


def reason_not_run(command: str) -> str | None:
    """Why the command is not run, or None when it is."""
    if command in NOT_RUN:
        return NOT_RUN[command]
    return next((why for words, why in NOT_RUN_WORDS.items() if words in command), None)
