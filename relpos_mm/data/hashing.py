"""A fingerprint of the data that a config reads, for the record of a run."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relpos_mm.data.sources import sources

_MANIFEST = "manifest.json"
_CHUNK = 1 << 20


def data_hash(
    cfg: Mapping[str, Any], parts: Sequence[str] = ("train", "val", "test")
) -> str | None:
    """SHA-256 over what identifies the data of `cfg`, or None when none of it is there.

    The embedded set is identified by its manifest, which holds the checksums of everything; other
    sets by the content of their annotation files and by the names and sizes directly within their
    folders. Pictures are not read: two sets that differ only in pixels under the same names and
    sizes share a hash.
    """
    identified: set[Path] = set()
    for source in sources(cfg, parts):
        near = [source.root, *source.root.parents[:2]]
        manifests = [folder / _MANIFEST for folder in near if (folder / _MANIFEST).is_file()]
        identified.update(manifests[:1] or (p for p in source.paths if p.exists()))
    if not identified:
        return None
    digests = sorted(f"{path.name} {_digest(path)}" for path in identified)
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    if path.is_dir():
        with os.scandir(path) as entries:
            for line in sorted(
                f"{e.name} {0 if e.is_dir() else e.stat().st_size}\n" for e in entries
            ):
                digest.update(line.encode())
    else:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()
