"""What a whole check is asked, and what it says in the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from relpos_mm.data.check.finding import Finding, error, errors_of, listed


@dataclass(frozen=True)
class Options:
    """How thorough a check is.

    Attributes:
        mini: The set is smaller than the published one: do not ask for its counts.
        limit: Pictures and label files to open per split; None means all.
        workers: Processes; 0 means one per core.
    """

    mini: bool = False
    limit: int | None = None
    workers: int = 0


@dataclass
class Outcome:
    """Findings, and how much was looked at: `counts` maps a thing to its number."""

    findings: list[Finding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether nothing stands in the way of a run."""
        return not errors_of(self.findings)

    def add(self, *findings: Finding) -> None:
        """Appends findings."""
        self.findings += findings

    def expect(self, what: str, place: Path, found: int, official: int | None) -> None:
        """Counts a thing and compares it with the published set's number, where one is asked."""
        self.counts[f"{what} in {place.name}"] = found
        if official is not None and found != official:
            self.add(
                error(
                    "count",
                    place,
                    f"{found:,} {what}, the published set has {official:,}",
                    "Unpack it again, or add --mini when a smaller set is meant",
                )
            )


def missing_layout(root: Path, folders: Iterable[str], how: str) -> list[Finding]:
    """One finding about those of `folders` that `root` lacks."""
    absent = [name for name in folders if not (root / name).is_dir()]
    if not absent:
        return []
    there = sorted(path.name for path in root.iterdir())[:8] if root.is_dir() else []
    value = f"no folder {listed(absent)} here; found {listed(there) or 'nothing'}"
    return [error("layout", root, value, how)]
