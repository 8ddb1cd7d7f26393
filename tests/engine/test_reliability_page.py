"""docs/reliability.md: every promise names test files that carry its id."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text()
ROWS = re.findall(r"^\| (B\d{3}) \| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("number", "tests"), [(row[0], row[2]) for row in ROWS])
def test_every_named_file_carries_the_id(number: str, tests: str) -> None:
    files = re.findall(r"`(tests/[\w/]+\.py)`", tests)
    assert files
    for name in files:
        text = (ROOT / name).read_text()
        assert re.search(rf"(?<![0-9a-z]){number}(?![0-9])", text, re.IGNORECASE), name


def test_every_id_of_the_page_has_one_row() -> None:
    numbers = [row[0] for row in ROWS]
    assert len(numbers) == len(set(numbers)) > 60
    assert set(re.findall(r"\bB\d{3}\b", PAGE)) == set(numbers)
