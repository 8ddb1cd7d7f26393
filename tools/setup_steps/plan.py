"""The steps that make `.venv/`, in the order in which they need each other."""

import hashlib
import re
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from .mmcv_wheel import cached_wheel, find_nvcc, nvcc_release, wanted_ops
from .progress import pip_progress, run_logged
from .stamps import Step

BUILD_TOOLS = ("pip", "setuptools", "wheel", "ninja", "packaging")
TORCH = ("torch", "torchvision")
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"

# Imports what the tools import and uses a compiled op: a finished set-up is one that works.
SELF_CHECK = """
import importlib.util
import torch, mmdet, mmseg, mmpretrain
from mmcv.ops import nms
assert importlib.util.find_spec("relpos_mm"), "relpos_mm is not installed"
boxes = torch.tensor([[0., 0., 10., 10.], [1., 1., 10., 10.], [20., 20., 30., 30.]])
kept = nms(boxes, torch.tensor([0.9, 0.8, 0.7]), 0.5)[1].tolist()
assert kept == [0, 2], f"nms kept {kept}, should keep [0, 2]"
print("self-check passed")
"""


def read_pins(text: str) -> dict[str, str]:
    """Return the exact pins of a requirements file: name -> "name==version", markers left out.

    A name that occurs twice (two lines with markers) is left to pip and not returned.
    """
    names = re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;#]+)", text, flags=re.MULTILINE)
    count = [name for name, _ in names]
    return {name: f"{name}=={version}" for name, version in names if count.count(name) == 1}


def digest(*contents: str) -> str:
    """Return a short hash of texts that decide whether a step runs again."""
    return hashlib.sha256("\0".join(contents).encode()).hexdigest()[:16]


def python_of(venv: Path) -> str | None:
    """Return "major.minor" of the interpreter in ``venv``, None when there is none that works."""
    if not (
        venv / "bin" / "python"
    ).exists():  # also false for a link to an interpreter that is gone
        return None
    try:
        config = (venv / "pyvenv.cfg").read_text()
    except OSError:
        return None
    found = re.search(r"^version\s*=\s*(\d+\.\d+)", config, flags=re.MULTILINE)
    return found.group(1) if found else None


def make_venv(venv: Path, site: Path, log: Path) -> None:
    """Create ``venv`` with the running interpreter; a sound one that the user made is kept."""
    if (site / "pip").is_dir() and python_of(venv) == VERSION:
        return
    shutil.rmtree(venv, ignore_errors=True)
    command = [sys.executable, "-m", "venv", str(venv)]
    run_logged("venv", command, log, lambda *_: "creating")


def steps_for(root: Path, venv: Path) -> list[Step]:
    """Return the steps of the set-up of the checkout ``root`` into ``venv``."""
    requirements = root / "requirements.txt"
    pins = read_pins(requirements.read_text())
    python = venv / "bin" / "python"
    site = venv / "lib" / f"python{VERSION}" / "site-packages"

    def log(step: str) -> Path:
        return venv / "logs" / f"{step}.log"

    def pip(step: str, usual: str, *arguments: str) -> None:
        command = [str(python), "-m", "pip", "install", *arguments]
        run_logged(step, command, log(step), pip_progress(usual))

    def installed(pattern: str) -> Callable[[], bool]:
        return lambda: any(site.glob(pattern))

    def install_mmcv() -> None:
        wheel = cached_wheel(python, pins["onedl-mmcv"], ops, site, log("mmcv"))
        pip("mmcv", "half a minute", "--force-reinstall", "--no-deps", str(wheel))

    def install_requirements() -> None:
        pip("requirements", "2 minutes", "-r", str(requirements))
        # Both opencv packages are asked for by others and own the same files. The headless one goes
        # last, since the other cannot be imported on a machine without libGL.
        headless = pins["opencv-python-headless"]
        pip("requirements", "2 minutes", "--force-reinstall", "--no-deps", headless)

    def self_check() -> None:
        command = [str(python), "-c", SELF_CHECK]
        run_logged("check", command, log("check"), lambda *_: "importing")

    ops = wanted_ops()
    nvcc = find_nvcc() if ops == "cuda" else None
    tools = [pins[name] for name in BUILD_TOOLS]
    torch = [pins[name] for name in TORCH]
    package_files = [(root / "pyproject.toml").read_text(), str(root)]
    return [
        Step(
            "venv",
            f"Python {VERSION} environment in {venv}",
            (VERSION,),
            # The log lies beside the environment, which does not exist yet.
            partial(make_venv, venv, site, venv.with_name(venv.name + ".log")),
            lambda: python_of(venv) == VERSION,
        ),
        Step("tools", "Build tools", tuple(tools), partial(pip, "tools", "10 s", "-U", *tools)),
        Step(
            "torch",
            "torch and torchvision (up to 3 GB of downloads)",
            tuple(torch),
            partial(pip, "torch", "2 to 5 minutes", *torch),
            installed("torch-*.dist-info"),
        ),
        Step(
            "mmcv",
            f"mmcv with compiled ops for {ops} (the first time 5 to 20 minutes, then cached)",
            (pins["onedl-mmcv"], ops, nvcc_release(nvcc) if nvcc else ""),
            install_mmcv,
            installed("mmcv/_ext.*"),
        ),
        Step(
            "requirements",
            "The libraries: mmengine, mmdet, mmseg, mmpretrain and what they need",
            (digest(requirements.read_text()),),
            install_requirements,
            installed("onedl_mmdetection-*.dist-info"),
        ),
        Step(
            "package",
            "relpos_mm itself, editable",
            (digest(*package_files),),
            partial(pip, "package", "10 s", "--no-deps", "--no-build-isolation", "-e", str(root)),
        ),
        Step("check", "Self-check", (digest(SELF_CHECK),), self_check),
    ]
