"""What a data check reports: file, value and remedy, as an error or as a note."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

SHOWN = 10


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or worth knowing, about one file or folder.

    Attributes:
        rule: Short name of the rule; findings are grouped by it.
        file: The file or folder.
        value: What was found there.
        remedy: What to do about it.
        severity: "error": results would be wrong or the run would stop; "note": the readers have a
            documented rule for it.
    """

    rule: str
    file: str
    value: str
    remedy: str
    severity: str = "error"

    @property
    def is_error(self) -> bool:
        """Whether this stands in the way of a run."""
        return self.severity == "error"

    def __str__(self) -> str:
        return f"{self.file}: {self.value}. {self.remedy}."


def note(rule: str, file: object, value: str, remedy: str) -> Finding:
    """Returns a finding that does not stop a run."""
    return Finding(rule, str(file), value, remedy, "note")


def error(rule: str, file: object, value: str, remedy: str) -> Finding:
    """Returns a finding that stops a run."""
    return Finding(rule, str(file), value, remedy)


def listed(items: Iterable[Any], total: int | None = None, shown: int = SHOWN) -> str:
    """The first items, and how many there are when that is more: `3, 5, 9 ... (41 in all)`."""
    items = list(items) if not isinstance(items, Sequence) else items
    total = len(items) if total is None else total
    text = ", ".join(str(item) for item in items[:shown])
    return text if total <= shown else f"{text} ... ({total:,} in all)"


def errors_of(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that stop a run."""
    return [finding for finding in findings if finding.is_error]
