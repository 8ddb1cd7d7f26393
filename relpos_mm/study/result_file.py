"""The form of a result file, so that a malformed one is refused by name and not met later."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from relpos_mm.engine.errors import UserError

_NUMBER = (int, float)
_NAMES = {str: "text", int: "a whole number", bool: "true or false", _NUMBER: "a number"}
_COST = {
    **dict.fromkeys(("wall_s", "train_pictures_per_s", "peak_memory_mib", "processes"), _NUMBER),
    **dict.fromkeys(("params", "params_position", "params_position_pct"), _NUMBER),
    **dict.fromkeys(("gmac", "gmac_position", "gmac_position_pct"), _NUMBER),
    "device": str,
}
_PLACE: dict[str, Any] = {"task": str, "variant": str, "seed": int, "world": str}
_MEASURED: dict[str, Any] = {
    "metrics": {},
    "protocol": {"name": str},
    "precision": {"training": str, "evaluation": str},
    "cost": _COST,
    "data_sha256": str,
    "checkpoint": str,
}
_FORM: dict[str, Any] = {
    **_PLACE,
    **_MEASURED,
    "phase": str,
    "position_transferred": bool,
    "config_content": {"load_from": str, "model": {}},
    "versions": {},
    "start": {"weights": {"*": {}}},
    "validated_at": {},
    "tests": {"*": _MEASURED},
    "cell": {**_PLACE, "id": str, "study": str, "wall_s": _NUMBER},
}


def read_result(path: Path) -> dict[str, Any]:
    """Read a result file.

    Raises:
        UserError: It cannot be read or is of another form; the message names the key.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot be read ({error})") from None
    if not isinstance(content, dict) or not isinstance(content.get("metrics"), dict):
        raise UserError("is no result file")
    if wrong := list(_wrong(content, _FORM, "")):
        raise UserError(f"left out, {'; '.join(wrong)}")
    return content


def _wrong(node: Mapping[str, Any], form: Mapping[str, Any], where: str) -> Iterator[str]:
    """Yield what is of another type; a key that is absent or null is of none."""
    for key, value in node.items():
        wanted = form.get(key, form.get("*"))
        if wanted is None or value is None:
            continue
        if isinstance(wanted, Mapping):
            if isinstance(value, dict):
                yield from _wrong(value, wanted, f"{where}{key}.")
            else:
                yield f"{where}{key} is {_told(value)}, not keys with values"
        elif not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            yield f"{where}{key} is {_told(value)}, not {_NAMES[wanted]}"


def _told(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
