"""Refusing arguments that no encoding and no model can have, by name and value."""

from __future__ import annotations

from math import isfinite
from numbers import Integral, Real


def require_counts(owner: str, **values: object) -> None:
    """Refuse what is no whole number of at least 1.

    Raises:
        ValueError: Names ``owner``, the argument and its value.
    """
    for name, value in values.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{owner}: {name} must be a whole number of at least 1, got {value!r}")


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
