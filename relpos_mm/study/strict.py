"""Strict reading of YAML into dataclasses: what a field's annotation does not admit is refused.

Nothing is converted: ``"no"`` is no boolean, a text is no list, and ``true`` is no number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import yaml

from relpos_mm.engine.errors import UserError

_FORMS = {
    str: "text; put it in quotes",
    int: "a whole number; write one without quotes",
    float: "a number; write one without quotes",
    bool: "true or false; write one of them without quotes",
    tuple: "a list; write [...]",
    dict: "keys with values; write {key: value}",
}


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader takes the last of equal keys without a word; this one refuses them."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                line = key.start_mark.line + 1
                require(key.value not in seen, f"line {line} gives {key.value!r} again; keep one")
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file.

    Raises:
        UserError: It cannot be read, is not UTF-8, is not YAML, or gives a key twice.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"not UTF-8 ({error}); save it as UTF-8") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"not YAML: {error}") from None


def require(condition: bool, message: str) -> None:
    """Refuse what a user wrote, with the message.

    Raises:
        UserError: The condition does not hold.
    """
    if not condition:
        raise UserError(message)


def require_once(values: Collection[Any], where: str) -> None:
    """Refuse values that are given twice.

    Raises:
        UserError: One is.
    """
    given = list(values)
    twice = next((value for value in given if given.count(value) > 1), None)
    require(twice is None, f"{where}: {twice!r} is given twice; keep one")


def require_known(value: str, known: Collection[str], where: str) -> None:
    """Refuse a name that is not one of those known, and suggest the nearest.

    Raises:
        UserError: It is not.
    """
    if value not in known:
        near = get_close_matches(value, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
        raise UserError(f"{where}: {value!r} is not known here; {hint}")


def read_fields(
    cls: type, content: Any, where: str = "", apart: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Return the arguments of a dataclass from a mapping; a key without a value counts as absent.

    Args:
        cls: The dataclass. Its field ``name`` is no key.
        content: What the file has.
        where: Dotted path of the content, for messages; empty for the whole file.
        apart: Keys that are returned as they are, for the caller to read.

    Raises:
        UserError: A key is unknown or missing, or a value is of another type than its field.
    """
    about = where or "the study"
    if not isinstance(content, Mapping):
        raise UserError(f"{about} must be keys with values, got {content!r}")
    known = {item.name: item for item in fields(cls) if item.name != "name"}
    names = set(known) | apart
    for key in content:
        if key not in names:
            near = get_close_matches(str(key), names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"keys are {', '.join(sorted(names))}"
            raise UserError(f"{about} has no key {key!r}; {hint}")
    given = {key: value for key, value in content.items() if value is not None}
    below, hints = f"{where}." if where else "", get_type_hints(cls)
    for name, item in known.items():
        if _is_needed(item) and name not in apart:
            empty = given.get(name) in (None, "", [], {})
            require(not empty, f"{below}{name} is missing; give it a value")
    return {
        key: value if key in apart else typed(value, hints[key], f"{below}{key}")
        for key, value in given.items()
    }


def typed(value: Any, wanted: Any, where: str) -> Any:
    """Return a value as an annotation has it: lists become tuples, mappings dataclasses.

    Args:
        value: What the file has.
        wanted: ``str``, ``int``, ``float``, ``bool``, ``Any``, a dataclass, ``X | None``,
            ``tuple[X, ...]`` or ``dict[str, X]``.
        where: Dotted path of the value, for messages.

    Raises:
        UserError: It is of another type.
    """
    parts, kind = get_args(wanted), get_origin(wanted) or wanted
    if wanted is Any:
        return value
    if isinstance(wanted, type) and is_dataclass(wanted):
        return wanted(**read_fields(wanted, value, where))
    if NoneType in parts:
        return typed(value, parts[0], where)
    admitted = {tuple: (list,), float: (int, float)}.get(kind, (kind,))
    require(type(value) in admitted, f"{where}: {value!r} is not {_FORMS[kind]}")
    if kind is tuple:
        return tuple(typed(item, parts[0], f"{where}[{at}]") for at, item in enumerate(value))
    if kind is dict:
        for key in value:
            require(type(key) is str, f"{where}: key {key!r} is not {_FORMS[str]}")
        return {key: typed(item, parts[1], f"{where}.{key}") for key, item in value.items()}
    return value


def _is_needed(item: Field[Any]) -> bool:
    return item.default is MISSING and item.default_factory is MISSING
