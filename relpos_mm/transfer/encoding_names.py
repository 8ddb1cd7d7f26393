"""Which position encodings a file and a model have, told by the names of tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import isclose
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
    if name == "RelativeBias":
        return {"type": name, "content": True}  # as in all public files
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


def option_differences(
    file: Mapping[str, Any], config: Mapping[str, Any], *, complete: bool
) -> dict[str, tuple[Any, Any]]:
    """Options that make two encodings of one type: name -> (value of the file, of the config).

    Args:
        file: Config of the file's encoding.
        config: Config of the encoding to load it into, of the same type.
        complete: Whether the file states its config, so that what is not in it has its default;
            tensors tell some options only.
    """
    cls = POSITIONS.module_dict.get(str(config["type"]))
    if cls is None:
        return {}
    ours, theirs = cls.options_of(config), cls.options_of(file)
    return {
        name: (theirs[name], value)
        for name, value in ours.items()
        if name in theirs  # another option makes some meaningless
        and (complete or name in file)
        and not _same(theirs[name], value)
    }


def told_differences(differences: Mapping[str, tuple[Any, Any]]) -> str:
    """Both values of every option, for messages."""
    sides = zip(*differences.values(), strict=True)
    told = [
        ", ".join(f"{name}={value!r}" for name, value in zip(differences, side, strict=True))
        for side in sides
    ]
    return f"{told[0]} in the file, {told[1]} in the config"


def _same(one: Any, other: Any) -> bool:
    """Whether two values of an option mean the same; a file's text has lists for tuples."""
    if isinstance(one, list | tuple) or isinstance(other, list | tuple):
        pairs = [
            tuple(value) if isinstance(value, list | tuple) else (value, value)
            for value in (one, other)
        ]
        return pairs[0] == pairs[1]
    numbers = all(isinstance(value, int | float) for value in (one, other))
    # Frequencies read off a published float32 table are not exact.
    return isclose(one, other, rel_tol=2e-4) if numbers else one == other
