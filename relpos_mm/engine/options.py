"""``--cfg-options``: settings of a command line that reach the config, or are refused."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from mmengine.config import Config, DictAction

from relpos_mm.checks import check_options

from .errors import UserError


class OptionAction(DictAction):
    """mmengine's parser of ``KEY=VALUE``, and dictionaries, written as in a config.

    What cannot be read is an error of the command line.
    """

    @staticmethod
    def _parse_iterable(val: str) -> Any:
        """Read a value; mmengine's grammar has lists and numbers, but no dictionaries.

        Raises:
            ValueError: A dictionary that is cut or holds more than literals.
        """
        if re.search(r"\bdict\(|\{\s*['\"}]", val):
            try:
                return ast.literal_eval(_DictCalls().visit(ast.parse(val, mode="eval")))
            except (SyntaxError, TypeError) as error:
                raise ValueError(str(error)) from None
        return DictAction._parse_iterable(val)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        for one in [values] if isinstance(values, str) else values or ():
            try:
                super().__call__(parser, namespace, [one], option_string)
            except (ValueError, AssertionError, RecursionError) as error:
                why = str(error) if "=" in one else "not KEY=VALUE"
                parser.error(
                    f'{option_string}: {one!r}: {why}; lists are written KEY="[1,2]", '
                    "dictionaries KEY=\"dict(type='A', b=1)\""
                )


class _DictCalls(ast.NodeTransformer):
    """Turn ``dict(a=1)``, as configs write it, into the literal ``{"a": 1}``."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        names = [keyword.arg for keyword in node.keywords]
        if getattr(node.func, "id", None) != "dict" or node.args or None in names:
            raise ValueError(f"{ast.unparse(node)} is no dict(name=value)")
        return ast.Dict(
            keys=[ast.Constant(name) for name in names],
            values=[keyword.value for keyword in node.keywords],
        )


def merge_options(cfg: Config, path: str, options: Mapping[str, Any]) -> None:
    """Put the options into a config.

    Raises:
        UserError: Nothing reads a key, or its path does not exist in the config.
    """
    if wrong := check_options(Path(path), cfg, options):
        raise UserError("--cfg-options: " + "\n".join(map(str, wrong)))
    for key, value in options.items():
        _require_path(cfg, key)
        try:
            cfg.merge_from_dict({key: value})
        except (KeyError, TypeError, IndexError, ValueError, AssertionError) as error:
            raise UserError(
                f"--cfg-options: {key}={value!r} does not fit {path}: {error}"
            ) from None


def _require_path(cfg: Config, key: str) -> None:
    """Refuse a misspelt inner name: mmengine would make a new dictionary of that name.

    The last name may be new, as in ``model.backbone.with_cp``: whoever gets it refuses strangers.
    """
    node: Any = dict(cfg.items())
    names = key.split(".")
    for depth, name in enumerate(names):
        here = ".".join(names[: depth + 1])
        if isinstance(node, Mapping):
            near = get_close_matches(name, list(node), n=1, cutoff=0.8)
            if name not in node and near and depth < len(names) - 1:
                raise UserError(
                    f"--cfg-options: {key}: the config has no {here}; did you mean {near[0]!r}?"
                )
            node = node.get(name, {})
        elif isinstance(node, Sequence) and not isinstance(node, str):
            if not name.isdigit() or int(name) >= len(node):
                raise UserError(
                    f"--cfg-options: {key}: {here} does not exist; the list has {len(node)} items, "
                    "counted from 0"
                )
            node = node[int(name)]
        else:
            parent = ".".join(names[:depth])
            raise UserError(f"--cfg-options: {key}: {parent} has no parts, it is {node!r}")


def count(text: str) -> int:
    """Read a command line's number of things.

    Raises:
        argparse.ArgumentTypeError: It is no whole number of at least 1.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def seconds(text: str) -> float:
    """Read a command line's length of time.

    Raises:
        argparse.ArgumentTypeError: It is no number above 0.
    """
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return found
