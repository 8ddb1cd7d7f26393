"""A measurement renews its record and the block of its page; the rest of the page stays."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from relpos_mm.analysis import measured_page
from relpos_mm.analysis.measured_page import MeasuredPage
from relpos_mm.engine.errors import UserError
from relpos_mm.engine.versions import code_version


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(f"{row['name']} {row['ms']}" for row in rows)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MeasuredPage:
    monkeypatch.setattr(measured_page, "DOCS", tmp_path)
    text = "Before\n<!-- times:begin -->\nold\n<!-- times:end -->\nAfter\n"
    (tmp_path / "speed.md").write_text(text)
    return MeasuredPage("speed", "times", table)


def rows() -> Iterator[dict[str, Any]]:
    yield {"name": "a", "ms": 1.23456}
    yield {"name": "b", "ms": 2.0}


def test_page_and_record_are_renewed(page: MeasuredPage) -> None:
    page.measure(rows())
    assert page.rows() == [{"name": "a", "ms": 1.235}, {"name": "b", "ms": 2.0}]
    record = json.loads(page.path.with_suffix(".json").read_text())
    assert record["machine"]["threads"] == 1
    assert record["versions"]["relpos_mm"] == code_version()
    assert "torch" in record["versions"]
    lines = page.path.read_text().splitlines()
    assert lines[0] == "Before"
    assert lines[-1] == "After"
    assert f"torch {record['versions']['torch']}" in lines[2]
    assert lines[4:6] == ["a 1.235", "b 2.0"]


def test_an_edited_page_is_noticed(page: MeasuredPage) -> None:
    page.measure(rows())
    page.path.write_text(page.path.read_text().replace("1.235", "1.000"))
    with pytest.raises(ValueError, match=r"speed\.md does not show its record"):
        page.rows()


def test_a_measurement_that_fails_leaves_both_files(page: MeasuredPage) -> None:
    def failing() -> Iterator[dict[str, Any]]:
        yield from rows()
        raise UserError("results differ")

    with pytest.raises(UserError, match="results differ"):
        page.measure(failing())
    page.path.write_text("no markers")
    with pytest.raises(UserError, match=r"speed\.md: the markers"):
        page.measure(rows())
    assert not page.path.with_suffix(".json").exists()
