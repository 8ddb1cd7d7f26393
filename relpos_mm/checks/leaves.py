"""Leaves of one task must differ in the position encoding and in nothing else.

Two runs can only be compared when their resolved configs are equal but for the encoding. A leaf is
called ``<family>_<slug>.py``, the slug being that of its ``position`` list. Where the host has a
usual absolute encoding (``usual_slug``), slugs leave that one out and say ``noabs`` without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.registry import MODELS

from relpos_mm.encodings import position_slug

from .problem import Problem

_ABSENT = "(absent)"


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield ``(dotted key, value)`` of nested dicts and lists; a ``position`` list stays whole."""
    if prefix.endswith(".position"):
        yield prefix, value
    elif isinstance(value, Mapping) and value:
        for key, child in value.items():
            yield from flatten(child, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        for index, child in enumerate(value):
            yield from flatten(child, f"{prefix}.{index}")
    else:
        yield prefix, value


def differences(one: Config, other: Config) -> dict[str, tuple[Any, Any]]:
    """Return the dotted keys whose values differ, with both values."""
    left, right = dict(flatten(one.to_dict())), dict(flatten(other.to_dict()))
    pairs = {
        key: (left.get(key, _ABSENT), right.get(key, _ABSENT))
        for key in [*left, *(key for key in right if key not in left)]
    }
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def position_of(config: Config) -> list[dict[str, Any]] | None:
    """Return the one ``position`` list in the model of ``config``, or None when it has none."""
    found = [value for key, value in flatten(config.model) if key.split(".")[-1] == "position"]
    return list(found[0]) if found else None


def slug_of(config: Config) -> str | None:
    """Return the slug of the model's encodings, by the rule of their host; None without a list."""
    position = position_of(config)
    if position is None:
        return None
    types = [value for key, value in flatten(config.model) if key.split(".")[-1] == "type"]
    hosts = [MODELS.module_dict[name] for name in types if name in MODELS.module_dict]
    usual = next((host.usual_slug for host in hosts if hasattr(host, "usual_slug")), None)
    return position_slug(position, usual)


def family_of(path: Path, config: Config) -> str | None:
    """Return the file name without its slug, or None when the file's name does not end with it."""
    slug = slug_of(config)
    if slug is None:
        return None
    ending = f"_{slug}"
    return path.stem.removesuffix(ending) if path.stem.endswith(ending) else None


def check_leaves(configs: Mapping[Path, Config]) -> list[Problem]:
    """Check names against encodings, and each family of leaves for other differences.

    Args:
        configs: Resolved leaves by file.
    """
    problems: list[Problem] = []
    families: dict[tuple[Path, str], list[Path]] = {}
    for path, config in configs.items():
        position = position_of(config)
        if position is None:
            continue
        family = family_of(path, config)
        if family is None:
            problems.append(
                Problem(
                    path,
                    "model.backbone.position",
                    position,
                    "the file's name does not say this encoding",
                    f"Let the name end in _{slug_of(config)}.py, or change the list",
                )
            )
        else:
            families.setdefault((path.parent, family), []).append(path)
    for members in families.values():
        problems.extend(_check_family(members, configs))
    return problems


def _check_family(members: list[Path], configs: Mapping[Path, Config]) -> Iterator[Problem]:
    # The published model is the reference where there is one, so that the odd leaf gets the blame.
    reference = next((path for path in members if path.stem.endswith("_relonly")), members[0])
    for path in members:
        for key, (value, expected) in differences(configs[path], configs[reference]).items():
            if key.split(".")[-1] != "position":
                yield Problem(
                    path,
                    key,
                    value,
                    f"{reference.name} has {expected!r} here, and leaves of one task may differ "
                    "in `position` only",
                    "Move the change to the common base, or give the file a family name of its own",
                )
