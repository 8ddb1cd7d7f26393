"""Refusing arguments that no encoding and no model can have, by name and value."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from math import isfinite
from numbers import Integral, Real


def require_counts(owner: str, *, least: int = 1, **values: object) -> None:
    """Refuse what is no whole number of at least ``least``.

    Raises:
        ValueError: Names ``owner``, the argument and its value.
    """
    for name, value in values.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            raise ValueError(
                f"{owner}: {name} must be a whole number of at least {least}, got {value!r}"
            )


def require_flags(cls: type, arguments: Mapping[str, object]) -> None:
    """Refuse what is neither True nor False where the constructor of ``cls`` says ``bool``.

    Any other value would count as True or False without a word, ``"False"`` as True.

    Raises:
        ValueError: Names the class, the argument and its value.
    """
    for name, wanted in _flags(cls).items():
        value = arguments.get(name, False)
        if not isinstance(value, bool) and not (value is None and "None" in wanted):
            choices = "True, False or None" if "None" in wanted else "True or False"
            raise ValueError(f"{cls.__name__}: {name} must be {choices}, got {value!r}")


@cache
def _flags(cls: type) -> dict[str, set[str]]:
    """Names of the types that each argument annotated as ``bool`` or ``bool | None`` may have."""
    flags = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        kind = parameter.annotation
        # A string, unless the module leaves annotations evaluated.
        names = kind if isinstance(kind, str) else getattr(kind, "__name__", None) or str(kind)
        types = {part.strip() for part in names.split("|")}
        if "bool" in types <= {"bool", "None"}:
            flags[name] = types
    return flags


def require_positive(owner: str, **values: object) -> None:
    """Refuse what is no finite number above 0.

    Raises:
        ValueError: Names ``owner``, the argument and its value.
    """
    for name, value in values.items():
        if not isinstance(value, Real) or not isfinite(value) or value <= 0:
            raise ValueError(f"{owner}: {name} must be a number above 0, got {value!r}")


def require_rate(owner: str, **values: object) -> None:
    """Refuse what is no share that dropout can take: from 0 to below 1.

    Raises:
        ValueError: Names ``owner``, the argument and its value.
    """
    for name, value in values.items():
        if not isinstance(value, Real) or not 0 <= float(value) < 1:
            raise ValueError(f"{owner}: {name} must be from 0 to below 1, got {value!r}")


def head_width(owner: str, embed_dims: int, num_heads: int) -> int:
    """Width d of one head.

    Raises:
        ValueError: No counts, or ``num_heads`` does not divide ``embed_dims``.
    """
    require_counts(owner, embed_dims=embed_dims, num_heads=num_heads)
    if embed_dims % num_heads:
        raise ValueError(f"{owner}: num_heads={num_heads} does not divide embed_dims={embed_dims}")
    return embed_dims // num_heads
