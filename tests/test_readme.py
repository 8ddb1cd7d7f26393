"""README and docs show recorded results, and nothing but them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relpos_mm.engine.errors import UserError
from relpos_mm.pictures import contact_sheet
from relpos_mm.readme import (
    PAGES,
    load_records,
    load_studies,
    record_demo,
    render_results,
    render_study,
    update_results,
)

RESULT = {
    "phase": "train",
    "task": "detection",
    "variant": "relonly",
    "seed": 3,
    "metrics": {"box_ap": 0.5125, "mask_ap": None, "miou_pct": 41.26},
    "protocol": {"name": "some-protocol"},
    "cost": {"wall_s": 90.0, "device": "cpu"},
    "config": "configs/some.py",
    "config_sha256": "c" * 64,
    "data_sha256": "d" * 64,
    "versions": {"torch": "2.0"},
    "checkpoint": "/someones/runs/iter_1.pth",
}


@pytest.mark.parametrize("page", PAGES)
def test_page_equals_its_records(repo_root: Path, page: str) -> None:
    text, records = (repo_root / page).read_text(), load_records(repo_root / "docs" / "results")
    studies = load_studies(repo_root / "docs" / "studies") if page == "README.md" else []
    assert update_results(page, text, records, studies) == text, (
        "run: python tools/update_readme.py"
    )


def test_versions_of_all_runs_are_named() -> None:
    other = {**RESULT, "versions": {"torch": "3.0"}}
    text = render_results({"detection": {"a": RESULT, "b": RESULT}, "segmentation": {"c": other}})
    assert text.endswith("\n\nData dddddddddddd; cpu; torch 2.0 or torch 3.0.")


def test_every_record_stands_on_one_page(repo_root: Path) -> None:
    shown = [task for tasks in PAGES.values() for task in tasks]
    assert sorted(shown) == sorted(load_records(repo_root / "docs" / "results"))


def test_record_keeps_the_numbers_and_no_path_of_the_machine(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "result.json").write_text(json.dumps(RESULT))
    path = record_demo({"cascade": run_dir}, "detection", tmp_path / "results")
    assert "/someones" not in path.read_text()
    assert load_records(tmp_path / "results")["detection"]["cascade"]["metrics"]["box_ap"] == 0.5125


def test_missing_result_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"result\.json is missing"):
        record_demo({"cascade": tmp_path}, "detection", tmp_path)


def test_table_shows_measured_metrics_with_protocol_and_leaves_out_missing_ones() -> None:
    row = render_results({"detection": {"cascade_scratch": RESULT}}).splitlines()[5]
    assert row == (
        "| detection | cascade scratch | relonly | box AP 0.512, mIoU 41.3 % | some-protocol | 3 "
        "| 1.5 |"
    )


def test_studies_stand_below_the_demos_table() -> None:
    table = {"head": ["pair", "verdict"], "rows": [["a - b", "undecided"]], "caption": "why"}
    brief = {"study": "s", "title": "A study", "text": ["Level: mechanism."], "tables": [table]}
    old = "x <!-- results:begin --> <!-- results:end --> y"
    new = update_results("README.md", old, {"detection": {"cascade": RESULT}}, [brief])
    block = (
        "| pair | verdict |\n| --- | --- |\n| a - b | undecided |\n\nwhy.\n<!-- results:end --> y"
    )
    assert new.endswith(block)
    assert "**A study**\n\nLevel: mechanism." in new


def test_a_kept_study_links_to_its_report(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    brief = {"study": "s", "title": "A study", "text": [], "tables": []}
    (tmp_path / "mine/summary.json").write_text(json.dumps([brief]))
    (loaded,) = load_studies(tmp_path)
    assert render_study(loaded) == "**[A study](docs/studies/mine/report.md)**"


def test_page_without_markers_is_refused() -> None:
    with pytest.raises(UserError, match=r"docs/detr\.md: the markers"):
        update_results("docs/detr.md", "# no markers", {"detr": {"detr": RESULT}})


def test_no_record_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"README\.md: there is no record; .*demo\.py --task detec"):
        update_results("README.md", "", load_records(tmp_path))
    with pytest.raises(UserError, match=r"docs/detr\.md: there is no record; .*--task detr "):
        update_results("docs/detr.md", "", {"detection": {"cascade": RESULT}})


def test_contact_sheet_lays_pictures_out_in_rows(tmp_path: Path) -> None:
    from PIL import Image

    paths = []
    for i, colour in enumerate(("red", "lime", "blue")):
        paths.append(tmp_path / f"{i}.png")
        Image.new("RGB", (10, 20), colour).save(paths[-1])
    contact_sheet(paths, tmp_path / "sheet.png", columns=2, width_px=10, gap_px=2)
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (22, 42)
        assert sheet.getpixel((15, 5)) == (0, 255, 0)
        assert sheet.getpixel((5, 30)) == (0, 0, 255)
        assert sheet.getpixel((15, 30)) == (255, 255, 255)
    with pytest.raises(ValueError, match="no pictures"):
        contact_sheet([], tmp_path / "none.png", columns=2)
