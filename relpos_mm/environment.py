"""Finds what is wrong with an installation and says which command repairs it.

The usual damage is silent: mmcv without its compiled ops imports well and fails at the first
RoIAlign, and libraries of unfitting versions fail deep inside. Only ``require_ops`` imports the
libraries; everything else looks at files and metadata.
"""

import importlib
import importlib.metadata
import importlib.util
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version

# As in pyproject.toml. The libraries check each other at import, but name no set that fits.
SUPPORTED: Mapping[str, str] = {
    "torch": ">=2.6",
    "torchvision": ">=0.21",
    "onedl-mmengine": ">=0.10.12,<0.11",
    "onedl-mmcv": ">=2.3.6,<2.4",
    "onedl-mmdetection": ">=3.5.1,<3.6",
    "onedl-mmsegmentation": ">=1.4.2,<1.5",
    "onedl-mmpretrain": ">=1.3.6,<1.4",
}
# Distributions that own the same import name: with both installed their files are mixed.
ORIGINALS: Mapping[str, tuple[str, ...]] = {
    "onedl-mmengine": ("mmengine", "mmengine-lite"),
    "onedl-mmcv": ("mmcv", "mmcv-full", "mmcv-lite"),
    "onedl-mmdetection": ("mmdet",),
    "onedl-mmsegmentation": ("mmsegmentation",),
    "onedl-mmpretrain": ("mmpretrain",),
}
INSTALL_COMMAND = "make setup  (or the pip lines in docs/install.md for an environment of your own)"


class MissingOps(ImportError):
    """mmcv's compiled ops cannot be used; the text says why and which command repairs it."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong ("error") or untested ("note"), and the command that repairs it."""

    level: Literal["error", "note"]
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.level}: {self.what}\n  remedy: {self.remedy}"


def installed_version(distribution: str) -> str | None:
    """Return the version of ``distribution``, or None when it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def has_compiled_ops() -> bool | None:
    """Return whether mmcv's extension module is there, None without mmcv. Does not import mmcv."""
    mmcv = importlib.util.find_spec("mmcv")
    if mmcv is None or not mmcv.submodule_search_locations:
        return None
    return PathFinder.find_spec("mmcv._ext", list(mmcv.submodule_search_locations)) is not None


def _missing_ops_text() -> str:
    return (
        "mmcv is installed without its compiled ops (mmcv._ext), so RoIAlign and NMS cannot run; "
        "pip built it where it could not see torch"
    )


def _rebuild() -> str:
    # --no-cache-dir: pip keeps the wheel without ops and would install it again.
    found = Path(__file__).parents[1] / "tools" / "cxx20"
    compiler = found if found.is_file() else "$PWD/tools/cxx20"  # a copy without the checkout
    return (
        f"make clean setup; in an environment of your own: CC={compiler} CXX={compiler} CFLAGS=-O2 "
        "pip install --force-reinstall --no-deps --no-cache-dir --no-build-isolation "
        f"onedl-mmcv=={installed_version('onedl-mmcv') or '2.3.6'}"
    )


def warn_if_no_ops() -> None:
    """Warn when mmcv is there without compiled ops. Cheap: called at ``import relpos_mm``."""
    if has_compiled_ops() is False:
        warnings.warn(f"{_missing_ops_text()}. Remedy: {_rebuild()}", stacklevel=2)


def require_ops() -> None:
    """Import mmcv's ops, or raise one clear error; tools call this before they build a model.

    Raises:
        MissingOps: mmcv is absent, has no compiled ops, or ops that fit another torch.
        ImportError: mmcv itself cannot be imported, for a reason of its own.
    """
    compiled = has_compiled_ops()
    if compiled is None:
        raise MissingOps(f"mmcv is not installed.\n  remedy: {INSTALL_COMMAND}")
    if not compiled:
        raise MissingOps(f"{_missing_ops_text()}.\n  remedy: {_rebuild()}")
    importlib.import_module("mmcv")
    try:
        importlib.import_module("mmcv.ops")
    except ImportError as error:
        raise MissingOps(
            f"mmcv's compiled ops do not load ({error}); they were built for another torch than "
            f"{installed_version('torch')}.\n  remedy: {_rebuild()}"
        ) from error


def _check_versions(version: Callable[[str], str | None]) -> list[Finding]:
    findings = []
    for name, window in SUPPORTED.items():
        found = version(name)
        others = [
            f"{other} {version(other)}" for other in ORIGINALS.get(name, ()) if version(other)
        ]
        if found and others:
            both = (
                f"{name} {found} and {', '.join(others)} are both installed and own the same files"
            )
            names = " ".join([name, *(other.split()[0] for other in others)])
            remedy = f"pip uninstall -y {names}, then {INSTALL_COMMAND}"
            findings.append(Finding("error", both, remedy))
        elif others:
            what = f"{', '.join(others)} in place of {name}: should work, is not tested"
            findings.append(Finding("note", what, INSTALL_COMMAND))
        elif found is None:
            findings.append(Finding("error", f"{name} is not installed", INSTALL_COMMAND))
        elif not SpecifierSet(window).contains(found, prereleases=True):
            what = f"{name} {found} is outside the supported window {window}"
            remedy = f'pip install "{name}{window}"'
            if name == "onedl-mmcv":
                remedy = INSTALL_COMMAND
            findings.append(Finding("error", what, remedy))
    return findings


def _check_pairs(version: Callable[[str], str | None]) -> list[Finding]:
    findings = []
    torch, vision = version("torch"), version("torchvision")
    # torchvision 0.N belongs to torch 2.(N - 15); another pair fails with "torchvision::nms".
    if torch and vision and Version(torch).major == 2:
        fitting = f"0.{Version(torch).minor + 15}"
        if Version(vision).release[:2] != Version(fitting).release[:2]:
            what = f"torchvision {vision} does not belong to torch {torch}"
            findings.append(Finding("error", what, f'pip install "torchvision=={fitting}.*"'))
    transformers = version("transformers")
    if transformers and Version(transformers).major >= 5:
        what = f"transformers {transformers}: mmpretrain's multimodal models need names it removed"
        findings.append(Finding("error", what, 'pip install "transformers<5"'))
    setuptools = version("setuptools")
    old = [name for name in ("mmengine", "mmcv", "mmpretrain") if version(name)]
    if old and setuptools and Version(setuptools).major >= 82:
        what = f"setuptools {setuptools} has no pkg_resources, which {', '.join(old)} need"
        findings.append(Finding("error", what, 'pip install "setuptools<82"'))
    return findings


def check_environment(
    version: Callable[[str], str | None] = installed_version,
) -> list[Finding]:
    """Return what is wrong with the installed versions and with mmcv's ops; empty when all is well.

    Args:
        version: gives the version of a distribution, None when it is not installed.
    """
    findings = _check_versions(version) + _check_pairs(version)
    if has_compiled_ops() is False:
        findings.append(Finding("error", _missing_ops_text(), _rebuild()))
    return findings
