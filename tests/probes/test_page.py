"""docs/probes.md shows what its records say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relpos_mm.engine.errors import UserError
from relpos_mm.probes.page import update_page
from relpos_mm.probes.record import Findings, Record, write_record


def test_the_page_is_up_to_date(repo_root: Path) -> None:
    page = (repo_root / "docs" / "probes.md").read_text()
    shown = update_page(page, repo_root / "docs" / "probes")
    assert shown == page, "run: python tools/update_readme.py"


def test_the_records_name_no_machine(repo_root: Path) -> None:
    for path in (repo_root / "docs" / "probes").glob("*.json"):
        record = json.loads(path.read_text())
        assert record["checkpoint"].startswith("work_dirs/"), path
        assert record["config"].startswith("configs/"), path


def test_a_block_has_a_table_per_probe(tmp_path: Path) -> None:
    empty = "<!-- probes:begin -->\n<!-- probes:end -->"
    with pytest.raises(UserError, match="no records of probes"):
        update_page(empty, tmp_path)
    for variant, gain in (("relonly", 1.0), ("noenc", 2.0)):
        record = Record("toy", {"step": 4, "margin": None}, variant, Findings({"gain": gain}))
        write_record(record, tmp_path)
    page = update_page(empty, tmp_path)
    assert "(mechanism; `step` 4):" in page
    assert "| gain |     2 |       1 |" in page
