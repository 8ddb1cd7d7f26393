"""Which position encodings a file and a model have, told by the names of tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from relpos_mm.encodings import position_slug
from relpos_mm.registry import POSITIONS


def encoding_of_key(key: str) -> str | None:
    """Type of the encoding that a canonical backbone key belongs to, such as ``RelativeBias``."""
    head, found, rest = ("." + key).partition(".position.")
    if not found or not re.fullmatch(r"|.*\.attn|\.stages\.\d+", head):
        return None
    return camel(rest.split(".")[0])


def camel(name: str) -> str:
    """``relative_bias`` -> ``RelativeBias``."""
    return "".join(word.capitalize() for word in name.split("_"))


def encodings_of_keys(keys: Iterable[str]) -> dict[str, list[str]]:
    """Encoding type -> its keys, for the encodings that have tensors."""
    found: dict[str, list[str]] = {}
    for key in keys:
        if name := encoding_of_key(key):
            found.setdefault(name, []).append(key)
    return found


def config_by_keys(name: str, keys: Iterable[str]) -> dict[str, Any]:
    """What the names of its tensors tell of an encoding's config; its slug follows from that."""
    if name != "ContextualRpe":
        return {"type": name}
    sides = {hit[1] for key in keys if (hit := re.search(r"\.rpe_([qkv])\.", key))}
    mode = "bias" if any(key.endswith("lookup_table_bias") for key in keys) else "contextual"
    return {"type": name, "rpe_on": "".join(sorted(sides, key="qkv".index)), "mode": mode}


def slug_of_configs(configs: Iterable[Mapping[str, Any]], usual: str | None = None) -> str:
    """The slug of a set of encodings; types that this project lacks are spelled out.

    Args:
        configs: One per encoding.
        usual: As in :func:`~relpos_mm.encodings.position_slug`.
    """
    known = list(configs)
    names = sorted(str(cfg["type"]) for cfg in known)
    if all(name in POSITIONS.module_dict for name in names):
        return position_slug(known, usual)
    return "+".join(names)
