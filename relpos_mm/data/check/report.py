"""A check's outcome as text, and as json for other programs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from relpos_mm.data.check.finding import Finding, errors_of
from relpos_mm.data.check.outcome import Outcome

_PER_RULE = 10


def lines(name: str, outcome: Outcome) -> list[str]:
    """What was looked at, then errors, then notes; long lists of one rule are cut with a count."""
    wrong = errors_of(outcome.findings)
    notes = [finding for finding in outcome.findings if not finding.is_error]
    text = [f"{count:>12,} {what}" for what, count in outcome.counts.items()]
    for title, findings in (("error", wrong), ("note", notes)):
        text += _grouped(title, findings)
    verdict = "all is well" if not wrong else _counted(len(wrong), "error")
    return [*text, f"{name}: {verdict}, {_counted(len(notes), 'note')}"]


def write_json(path: Path, name: str, outcome: Outcome) -> None:
    """Writes everything, uncut: `path`, `passed`, `counts`, `findings`."""
    content = {
        "path": name,
        "passed": outcome.passed,
        "counts": outcome.counts,
        "findings": [asdict(finding) for finding in outcome.findings],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _grouped(title: str, findings: Iterable[Finding]) -> list[str]:
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.rule, []).append(finding)
    text = []
    for rule, same in groups.items():
        text += [f"{title} [{rule}] {finding}" for finding in same[:_PER_RULE]]
        if len(same) > _PER_RULE:
            more = len(same) - _PER_RULE
            text.append(f"{title} [{rule}] ... and {more:,} more; --json FILE lists them all")
    return text
