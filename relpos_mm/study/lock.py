"""A lock that lives as long as any process that holds it, and not a moment longer.

The kernel frees it when the last holder ends, however it ends. Unlike a lock file of a library, the
descriptor can be handed to the processes that a cell starts: a training whose parent was killed
still holds its cell.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held(path: Path, patience_s: float = 0.0) -> Iterator[int | None]:
    """Hold the lock ``path``; yields its descriptor, or None when another process holds it.

    Pass the descriptor on with ``subprocess``'s ``pass_fds``.

    Args:
        path: A file, made where it is absent and left behind.
        patience_s: How long to try; :func:`is_held` takes a lock for a moment, too.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        yield descriptor if _take(descriptor, time.monotonic() + patience_s) else None
    finally:
        os.close(descriptor)


def _take(descriptor: int, until: float) -> bool:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.05)
        else:
            return True


def is_held(path: Path) -> bool:
    """Return whether any process holds the lock."""
    if not path.exists():
        return False
    with held(path) as descriptor:
        return descriptor is None
