"""The shell commands that README and docs show, and those among them that no test can run."""

from __future__ import annotations

import re
from pathlib import Path

_REAL = "tests/test_real_configs.py runs the config on a small tree of its layout"

# Command -> why no test runs it. Everything else in a ```bash block is run as it stands.
NOT_RUN = {
    "make demo": "ten minutes; its steps run one by one, and tests/test_demo.py runs it shortened",
    "python tools/gpu_check.py": "needs CUDA; tests/tools/test_gpu_check.py runs it on a CPU",
    "make test": "it is what runs this test",
    "python tools/probe.py proxy --doc docs": "minutes; the line above it runs one cell",
    "python tools/study.py run sign_flip_mini": "hours; tests/study/test_smoke.py runs a small one",
    "python tools/study.py report sign_flip_mini": (
        "needs finished cells; tests/study/test_smoke.py reports a small study"
    ),
}
# Commands with these words need what neither CI nor a reader's laptop has.
NOT_RUN_WORDS = {
    "transfer.py work_dirs/cls_swin_t_relonly/epoch_300.pth weights/": (
        "needs a trained classifier; tests/transfer/test_docs.py runs the same on a small one"
    ),
    "pip install": "changes the environment that the tests run in; make test has just done it",
    "configs/cls_swin_t": f"needs ImageNet; {_REAL}",
    "configs/cascade_swin_t": f"needs COCO; {_REAL}",
    **{
        f"data.py check {name}": f"needs {what}; tests/data/check checks small trees of its layout"
        for name, what in (
            ("coco data/coco", "COCO"),
            ("ade20k data/ade/", "ADE20K"),
            ("imagenet data/imagenet", "ImageNet"),
            ("coco my/data", "the reader's own data"),
        )
    },
    "detr_irpe.pth": "needs a DETR checkpoint; tests/tools/test_detr_runs.py converts one",
}

# Documents whose commands need files of their own, which another test makes for them.
RUN_ELSEWHERE = {
    "probes.md": "tests/probes/test_trained_models.py",
    "transfer.md": "tests/transfer/test_docs.py",
}

# What is a command in a block that also shows output.
_COMMAND = re.compile(r"(?:python|make|bash|pip|\.venv/bin/\w+) ")


def documents(root: Path) -> list[Path]:
    """README and every page of docs/."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def commands(document: Path) -> list[str]:
    """Commands of the document's shell blocks, one per logical line, comments left out.

    In ``bash`` blocks that is every line; in plain blocks, which also show output, what reads like
    a command.
    """
    found = []
    for kind, block in re.findall(
        r"^```(\w*)\n(.*?)^```", document.read_text(encoding="utf-8"), re.M | re.S
    ):
        if kind not in ("bash", "sh", "console", "text", ""):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            command = re.sub(r"\s+#.*$|^#.*$", "", line).strip()
            if command and (kind == "bash" or _COMMAND.match(command)):
                found.append(re.sub(r"\s+", " ", command))
    return found


def reason_not_run(command: str) -> str | None:
    """Why the command is not run, or None when it is."""
    if command in NOT_RUN:
        return NOT_RUN[command]
    return next((why for words, why in NOT_RUN_WORDS.items() if words in command), None)
