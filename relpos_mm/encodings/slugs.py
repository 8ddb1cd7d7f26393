"""Short names of ``position`` lists for file names, tables and result files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from relpos_mm.registry import encoding_class

# The rows of Table 4 have names of their own; every other list is spelled out.
_ROWS = {
    frozenset(): "noenc",
    frozenset({"abs"}): "absonly",
    frozenset({"abs", "rel"}): "absrel",
    frozenset({"rel"}): "relonly",
}


def position_slug(position: Iterable[Mapping[str, Any]]) -> str:
    """Return the slug of a ``position`` list; the order of the list does not matter.

    Options that differ from an encoding's defaults do not show: runs that vary them need names
    of their own.
    """
    slugs = frozenset(encoding_class(cfg).slug_of(cfg) for cfg in position)
    return _ROWS.get(slugs, "_".join(sorted(slugs)))
