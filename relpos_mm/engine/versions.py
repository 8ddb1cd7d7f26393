"""Which code a number comes from: the commit of this package and the versions of the libraries."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
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

    ``.changed`` follows where files differ from the commit. The version alone does not tell code
    apart between releases, and sums in another order are enough for other numbers. It is the one of
    the first call, so that a commit during a run does not name code that the run never saw.
    """
    from relpos_mm import __version__

    return f"{__version__}{_commit(_ROOT)}"


def _commit(root: Path) -> str:
    """Commit of a checkout as the local part of a version; empty where there is none."""
    if not (root / ".git").exists():  # an installed package may lie in a checkout of others
        return ""
    command = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=.changed"]
    quiet = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        found = subprocess.run(
            command, cwd=root, env=quiet, capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"+{found.stdout.strip()}"
