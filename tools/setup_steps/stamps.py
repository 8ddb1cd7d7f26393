"""Set-up as a chain of stamped steps: an interrupted set-up continues, a finished one is instant.

A step's stamp is a hash over its own inputs and those of all steps before it, so a changed pin
runs its own step and the later ones again, and nothing else.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

try:
    import fcntl
except ImportError:  # not a POSIX system: two set-ups at once are then the user's own affair
    fcntl = None  # type: ignore[assignment]


class Step(NamedTuple):
    """One step; ``inputs`` say whether it must run again, ``intact`` whether its result exists."""

    name: str
    title: str
    inputs: tuple[str, ...]
    action: Callable[[], None]
    intact: Callable[[], bool] = lambda: True


def stamps_of(steps: Sequence[Step]) -> list[str]:
    """Return one hash per step, each covering the inputs of the step and of all steps before it."""
    chain, stamps = hashlib.sha256(), []
    for step in steps:
        chain.update(json.dumps([step.name, *step.inputs]).encode())
        stamps.append(chain.hexdigest()[:16])
    return stamps


def read_stamps(path: Path) -> dict[str, str]:
    """Return the recorded stamps; a missing or damaged file counts as nothing done yet."""
    try:
        recorded = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return recorded if isinstance(recorded, dict) else {}


def write_stamps(path: Path, stamps: dict[str, str]) -> None:
    """Write ``stamps`` at once: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(stamps, indent=1))
    os.replace(partial, path)


def first_to_run(steps: Sequence[Step], recorded: dict[str, str]) -> int:
    """Return the index of the first step that has to run; ``len(steps)`` when all is done."""
    for index, (step, stamp) in enumerate(zip(steps, stamps_of(steps), strict=True)):
        if recorded.get(step.name) != stamp or not step.intact():
            return index
    return len(steps)


def run_steps(steps: Sequence[Step], path: Path, say: Callable[[str], None]) -> int:
    """Run what is not done yet, recording each step as it ends; return how many steps ran."""
    stamps = stamps_of(steps)
    start = first_to_run(steps, read_stamps(path))
    for index in range(start, len(steps)):
        say(f"[{index + 1}/{len(steps)}] {steps[index].title}")
        steps[index].action()
        # Later stamps are dropped here: what follows was built on a result that has just changed.
        done = {step.name: stamp for step, stamp in zip(steps[: index + 1], stamps, strict=False)}
        write_stamps(path, done)
    return len(steps) - start


@contextmanager
def locked(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold an exclusive lock on ``path``; ``on_wait`` is called once when another process has it.

    The operating system drops the lock with the process, so a killed set-up leaves none behind.
    """
    if fcntl is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
