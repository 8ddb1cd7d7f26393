"""Top-level names of a config file: each one must have a reader.

mmengine ignores a top-level name that it does not know, so ``optim_wraper = dict(...)`` trains
with the base's optimiser and says nothing. The same holds for a variable of a base that the base
has already used: setting ``crop_size`` in a child does not reach the base's pipelines.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.runner import Runner

from .problem import Problem

# Read by mmengine's Config (first line), by the test tools of the libraries (second line), by this
# project's tools and checks (third line).
_READ_OUTSIDE_RUNNER = {
    *("_base_", "custom_imports", "env_variables"),
    *("tta_model", "tta_pipeline"),
    *("task", "protocol", "tta_protocol", "params_without_position", "cpu_gemm"),
    "compile_backbone",
}


@cache
def known_keys() -> frozenset[str]:
    """Return every top-level name that mmengine's runner, the tools or the checks read.

    The runner's names are taken from its source, so a new mmengine needs no new list here.
    """
    arguments = set(inspect.signature(Runner.__init__).parameters) - {"self", "cfg"}
    looked_up = re.findall(r"self\.cfg\.get\(\s*['\"](\w+)['\"]", inspect.getsource(Runner))
    return frozenset(arguments | set(looked_up) | _READ_OUTSIDE_RUNNER)


def check_keys(path: Path, heirs: tuple[Path, ...] = ()) -> list[Problem]:
    """Refuse top-level names of ``path`` that nothing reads.

    Args:
        path: A config file in mmengine's ``_base_`` form.
        heirs: Files that may inherit from it and read its names as ``_base_.name``.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assigned = _assignments(tree)
    read = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    for heir in heirs:
        read.update(re.findall(r"_base_\.(\w+)", heir.read_text(encoding="utf-8")))
    unread = [name for name in assigned if name not in known_keys() | read]
    if not unread:
        return []
    inherited = _inherited(path, tree)
    return [
        _problem(path, name, _Source(ast.unparse(assigned[name])), inherited)
        for name in unread
        # None says that a variable of the base is not used: true, since nothing reads it.
        if not (name in inherited and _is_none(assigned[name]))
    ]


def check_options(path: Path, config: Config, options: Mapping[str, Any]) -> list[Problem]:
    """Refuse ``--cfg-options`` that reach nothing, by the rule of :func:`check_keys`.

    Args:
        path: The config file, for the messages.
        config: That file as it was read.
        options: Dotted keys and values.
    """
    return [
        _problem(path, key, value, set(config))
        for key, value in options.items()
        if key.split(".")[0] not in known_keys()
    ]


def _assignments(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the top-level names with the expressions assigned to them."""
    return {
        part.id: node.value
        for node in _statements(tree.body)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for part in ast.walk(target)  # of a tuple every name
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run at top level, those inside ``if``, ``for`` and so on too."""
    for node in body:
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            for block in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, block, []))


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _inherited(path: Path, tree: ast.Module) -> set[str]:
    """Return the top-level names of all bases of ``path``."""
    bases = ast.literal_eval(_assignments(tree).get("_base_", ast.List(elts=[])))
    names: set[str] = set()
    for base in [bases] if isinstance(bases, str) else bases:
        names.update(Config.fromfile(_base_path(path, base), import_custom_modules=False))
    return names


def _base_path(path: Path, base: str) -> Path:
    """Return the file of a ``_base_`` entry: beside ``path``, or in a library's wheel.

    Not ``mmengine.hub.get_config``: it runs pip when it does not find a distribution's name.
    """
    package, separator, inner = base.partition("::")
    if not separator:
        return path.parent / base
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ImportError(f"{path}: _base_ names {base!r}, but {package} is not installed")
    return Path(spec.origin).parent / ".mim" / "configs" / inner


def _problem(path: Path, key: str, value: object, variables: set[str]) -> Problem:
    name = key.split(".")[0]
    if name in variables:
        reason = "the base file has used this variable already, so a new value here reaches nothing"
        return Problem(path, key, value, reason, "Set the keys that were built from it instead")
    near = get_close_matches(name, sorted(known_keys() | variables), n=1)
    remedy = f"Did you mean {near[0]!r}" if near else "Leave it out, or use it in the same file"
    return Problem(path, key, value, "nothing reads this top-level name", remedy)


class _Source(str):
    """Source text that shows without quotation marks."""

    def __repr__(self) -> str:
        return str(self)
