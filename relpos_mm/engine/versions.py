"""Which code a number comes from: the commit of this package and the versions of the libraries."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
# What numbers come from; documents and reports may change while a study runs.
_CODE = ("relpos_mm", "tools", "configs")
_PACKAGES = {
    "torch": "torch",
    "torchvision": "torchvision",
    "mmengine": "onedl-mmengine",
    "mmcv": "onedl-mmcv",
    "mmdet": "onedl-mmdetection",
    "mmseg": "onedl-mmsegmentation",
    "mmpretrain": "onedl-mmpretrain",
}


def versions() -> dict[str, str | None]:
    """Return the versions of this package and of the libraries; None where one is absent."""
    found: dict[str, str | None] = {"relpos_mm": code_version()}
    for module, distribution in _PACKAGES.items():
        try:
            found[module] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            found[module] = None
    return found


@cache
def code_version() -> str:
    """Return this package's version, in a checkout with the commit: ``0.1.0+4c537f3a1b2c``.

    ``.changed`` follows where code differs from the commit, ``+unknown`` stands for it where git
    does not tell. The version alone does not tell code apart between releases, and sums in another
    order are enough for other numbers. It is the one of the first call, so that a commit during a
    run does not name code that the run never saw.
    """
    from relpos_mm import __version__

    return f"{__version__}{_commit(_ROOT)}"


def _commit(root: Path) -> str:
    """Commit of a checkout as the local part of a version; empty where there is none."""
    if not (root / ".git").exists():  # an installed package may lie in a checkout of others
        return ""
    try:
        commit = _git(root, "rev-parse", "--short=12", "HEAD").strip()
        changed = _git(root, "diff", "--name-only", "HEAD", "--", *_CODE)
    except (OSError, subprocess.SubprocessError):
        return "+unknown"
    return f"+{commit}{'.changed' if changed else ''}"


def _git(root: Path, *words: str) -> str:
    # Hooks and some set-ups name another repository in variables of git.
    own = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    own["GIT_OPTIONAL_LOCKS"] = "0"
    command = ["git", "-C", str(root), *words]
    found = subprocess.run(command, env=own, capture_output=True, text=True, check=True, timeout=60)
    return found.stdout
