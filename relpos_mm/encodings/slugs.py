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


def position_slug(position: Iterable[Mapping[str, Any]], usual: str | None = None) -> str:
    """Return the slug of a ``position`` list; the order of the list does not matter.

    Options that differ from an encoding's defaults do not show: runs that vary them need names
    of their own.

    Args:
        position: One dict per encoding.
        usual: Slug of the absolute encoding that every published model of the host has (DETR's
            sines, DeiT's table). Names leave it out and say ``noabs`` where it is missing: ``abs``,
            ``irpe_k``, ``irpe_k_noabs``.
    """
    slugs = frozenset(encoding_class(cfg).slug_of(cfg) for cfg in position)
    if usual is None:
        return _ROWS.get(slugs, "_".join(sorted(slugs)))
    others = sorted(slugs - {usual})
    if usual in slugs:
        return "_".join(others) or "abs"
    return "_".join([*others, "noabs"])
