"""Which position encodings a file and a model have, told by the names of tensors."""

from __future__ import annotations

from collections.abc import Iterable

from relpos_mm.encodings import position_slug
from relpos_mm.registry import POSITIONS


def encoding_of_key(key: str) -> str | None:
    """Type of the encoding that a canonical backbone key belongs to, such as ``RelativeBias``."""
    head, found, rest = ("." + key).partition(".position.")
    if not found or (head and not head.endswith(".attn")):
        return None
    return "".join(word.capitalize() for word in rest.split(".")[0].split("_"))


def encodings_of_keys(keys: Iterable[str]) -> dict[str, list[str]]:
    """Encoding type -> its keys, for the encodings that have tensors."""
    found: dict[str, list[str]] = {}
    for key in keys:
        if name := encoding_of_key(key):
            found.setdefault(name, []).append(key)
    return found


def slug_of_types(types: Iterable[str]) -> str:
    """The slug of a set of encoding types; those that this project lacks are spelled out."""
    names = sorted(types)
    if all(name in POSITIONS.module_dict for name in names):
        return position_slug([{"type": name} for name in names])
    return "+".join(names)
