"""What makes two trainings comparable: all of the config but encoding and seed, start and length.

The planner proves that cells of a study differ in ``position`` and seed only. A copied file brings
no proof, so the same is asked of what it holds. What a file does not say is unknown, not equal.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from relpos_mm.checks.leaves import flatten
from relpos_mm.engine.weights import SCRATCH

# Names in a config that change no number: what is compared, places, loading, logs and displays.
_FREE = {"position", "data_root", "num_workers", "persistent_workers", "pin_memory"}
_FREE |= {"prefetch_factor"}
_FREE_PARTS = {"load_from", "positions", "log_level", "log_processor", "vis_backends"}
_FREE_PARTS |= {"visualizer", "env_cfg"}
_FREE_KEYS = re.compile(
    r"randomness\.seed|default_hooks\.(timer|logger|checkpoint|visualization)\..*"
)
_OWN_CHECKPOINT = re.compile(r"(iter|epoch)_\d+\.pth")


@dataclass
class Training:
    """How the network of a result came about.

    Attributes:
        base: Hash of everything but the start.
        start: What it started from, as text; None where the file cannot tell, having been resumed.
        unknown: Names of what the file does not say.
    """

    base: str
    start: str | None
    unknown: tuple[str, ...] = ()

    @property
    def recipe(self) -> str:
        """One short hash of it all."""
        return _hash([self.base, self.start])


def training_of(content: Mapping[str, Any], variant: str, seed: int) -> Training:
    """Read a training from a result file."""
    config = content.get("config_content") or {}
    phase = content.get("phase")
    missing = [key for key in ("config_content", "validated_at") if not content.get(key)]
    if phase != "train":  # its config may be of another training than its weights
        missing.append(f"training (phase {phase})")
    leaves = {
        key: bare_name(value, variant, seed) if "/" in str(value) else value
        for key, value in flatten(config)
        if not is_free(key)
    }
    base = [
        leaves,
        (content.get("cost") or {}).get("processes"),
        (content.get("precision") or {}).get("training"),
        content.get("validated_at"),
    ]
    start = None if _resumed(content, config) else _start(content, config, variant, seed)
    return Training(_hash(base), start, tuple(missing))


def position_in(content: Mapping[str, Any]) -> str | None:
    """Return the model's encodings as text; None where the file has no config."""
    if not content.get("config_content"):
        return None
    model = content["config_content"].get("model")
    found = [value for key, value in flatten(model, "model") if key.endswith(".position")]
    return json.dumps(found[0] if found else None, sort_keys=True)


def bare_name(value: Any, variant: str, seed: int) -> Any:
    """Return the last name of a path, without the variant and the seed that may stand in it.

    Folders differ between machines; a published file's name tells which weights they are.
    """
    if not isinstance(value, str):
        return value
    own = rf"(?<![a-zA-Z0-9])({re.escape(variant)}|s(eed)?[-_]?{seed})(?![a-zA-Z0-9])"
    return re.sub(own, "", PurePosixPath(value).name)


def is_free(key: str) -> bool:
    """Whether a key of a config changes no number between runs of one encoding and seed.

    >>> is_free("test_dataloader.num_workers"), is_free("test_dataloader.batch_size")
    (True, False)
    """
    names = key.split(".")
    free = names[0] in _FREE_PARTS or not _FREE.isdisjoint(names)
    return free or _FREE_KEYS.fullmatch(key) is not None


def _resumed(content: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Whether the file tells of going on from a checkpoint of its own, and no more of its start."""
    begun = PurePosixPath(str(config.get("load_from") or ""))
    home = PurePosixPath(str(content.get("checkpoint") or "")).parent.name
    return begun.parent.name == home != "" and bool(_OWN_CHECKPOINT.fullmatch(begun.name))


def _start(content: Mapping[str, Any], config: Mapping[str, Any], variant: str, seed: int) -> str:
    """Parts that came from files and the names of these, as text."""
    weights = (content.get("start") or {}).get("weights")
    parts = None
    if weights is not None:
        parts = {part: sorted(_names(files, variant, seed)) for part, files in weights.items()}
        parts = {part: names for part, names in parts.items() if names}
    told = [content.get("position_transferred"), bare_name(config.get("load_from"), variant, seed)]
    return json.dumps([*told, parts], sort_keys=True)


def _names(sources: Mapping[str, Any], variant: str, seed: int) -> Iterator[str]:
    for source in sources:
        if source != SCRATCH:
            file, _, origin = source.rstrip(")").partition(" (made from ")
            yield " < ".join(bare_name(name, variant, seed) for name in (file, origin))


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
