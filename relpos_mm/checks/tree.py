"""All checks over a folder of configs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mmengine.config import Config

from .keys import check_keys
from .labels import check_label_order, check_zero_label
from .leaves import check_leaves
from .model import check_model
from .problem import Problem
from .protocol import check_protocol


def config_files(root: Path) -> tuple[list[Path], list[Path]]:
    """Return ``(leaves, bases)`` under ``root``; a base lies in a folder called ``_base_``."""
    files = [root] if root.is_file() else sorted(root.rglob("*.py"))
    leaves = [path for path in files if "_base_" not in path.parts]
    return leaves, [path for path in files if "_base_" in path.parts]


def check_tree(root: Path, *, progress: Callable[[str], None] = print) -> list[Problem]:
    """Run every check over the configs under ``root`` and return what they refuse.

    Args:
        root: A folder, or one config file (then nothing can be said about its siblings).
        progress: Receives one line per checked file.

    Raises:
        FileNotFoundError: There is no config under ``root``.
    """
    leaves, bases = config_files(root)
    if not leaves:
        raise FileNotFoundError(f"{root}: no config file here; give a folder such as configs/")
    problems: list[Problem] = []
    configs: dict[Path, Config] = {}
    for path in [*bases, *leaves]:
        try:
            problems += check_keys(path, heirs=(*bases, *leaves))
            if path in leaves:
                configs[path] = _read_leaf(path)
        except Exception as error:  # a config is a program: it can fail in any way
            remedy = "Correct the file; nothing else in it was checked"
            problems.append(Problem(path, "_base_", path.name, f"cannot be read: {error}", remedy))
    problems += check_leaves(configs)
    for path, config in configs.items():
        found = check_file(path, config)
        progress(f"{path}: {f'{len(found)} problem(s)' if found else 'ok'}")
        problems += found
    return problems


def _read_leaf(path: Path) -> Config:
    """Read a config that a run could use.

    Raises:
        ValueError: It has no model, so it is a base or no config at all.
    """
    config = Config.fromfile(path)
    if "model" not in config:
        raise ValueError("it has no model; bases belong into a folder called _base_")
    return config


def check_file(path: Path, config: Config) -> list[Problem]:
    """Run the checks that need no other file."""
    problems = [*check_protocol(path, config), *check_model(path, config)]
    if config.get("task") == "segmentation":
        problems += [*check_label_order(path, config), *check_zero_label(path, config)]
    return problems
