"""The pages of docs/encodings/ are complete and their generated parts up to date."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relpos_mm.analysis.catalogue import CATALOGUE, build
from relpos_mm.analysis.cost_report import catalogue_costs
from relpos_mm.analysis.pages import RECORD, missing, pages, rendered
from relpos_mm.analysis.tables import markdown_table, replace_block
from relpos_mm.engine.errors import UserError
from relpos_mm.registry import POSITIONS

SECTIONS = ("Formula", "Where it acts", "Another size", "Published results", "Pitfalls", "Cost")


@pytest.fixture
def folder(repo_root: Path) -> Path:
    return repo_root / "docs" / "encodings"


def test_every_setting_and_every_class_has_a_page(folder: Path) -> None:
    assert missing(folder) == []
    titles = {page.read_text().splitlines()[0].removeprefix("# ") for page in pages(folder)}
    assert titles == {cls for cls in POSITIONS.module_dict if cls != "ManhattanBias"}


def test_pages_have_all_sections_and_a_small_picture(folder: Path) -> None:
    for page in pages(folder):
        text = page.read_text()
        heads = [line[3:] for line in text.splitlines() if line.startswith("## ")]
        assert heads == list(SECTIONS), page.name
        picture = folder / "pictures" / f"{page.stem}.png"
        assert f"](pictures/{picture.name})" in text
        assert picture.stat().st_size < 40_000


def test_config_lines_are_valid(folder: Path) -> None:
    for page in pages(folder):
        code = page.read_text().split("```python\n")[1].split("```")[0]
        lines = [line for line in code.splitlines() if line.startswith("position")]
        assert lines, page.name
        for line in lines:
            namespace: dict = {}
            exec(line, namespace)
            assert build(namespace["position"], grid=(7, 7), embed_dims=96, num_heads=3)


def test_generated_parts_are_up_to_date(folder: Path) -> None:
    old = [page.name for page, text in rendered(folder).items() if page.read_text() != text]
    assert old == [], "run python tools/update_encodings.py"


def test_every_setting_has_a_recorded_cost_and_it_is_what_is_counted_now(folder: Path) -> None:
    record = json.loads((folder / RECORD).read_text())
    assert record.keys() == CATALOGUE.keys()
    assert catalogue_costs(["decomposed"])["decomposed"] == record["decomposed"]


def test_tables_align_and_numbers_stand_right() -> None:
    lines = markdown_table(["name", "n"], [["a", "1"], ["bcdefg", "1,000"]]).splitlines()
    assert lines == [
        "| name   |     n |",
        "| ------ | ----: |",
        "| a      |     1 |",
        "| bcdefg | 1,000 |",
    ]


def test_a_page_without_markers_is_refused() -> None:
    text = "a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n"
    renewed = replace_block(text, "x", "new", "page.md")
    assert renewed == "a\n<!-- x:begin -->\nnew\n<!-- x:end -->\nb\n"
    with pytest.raises(UserError, match=r"page\.md: the markers <!-- y:begin --> and"):
        replace_block(text, "y", "new", "page.md")
