"""Cells that were trained once more: shown beside the first ones, and in no verdict."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from relpos_mm.study.analysis import Analysis, analyse
from relpos_mm.study.records import collect
from relpos_mm.study.report import write_report
from relpos_mm.study.spec import Study

from .toys import toy_cells, toy_study, whole_study, write_result


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    found = toy_study(tmp_path, monkeypatch)
    whole_study(found)
    return found


def once_more(study: Study, folder: Path, change: float) -> Path:
    """Copy all classifiers; of odd seeds the metric is higher by ``change``, of even ones lower."""
    for variant in study.variants:
        for seed in study.seeds:
            name = f"classification-{variant}-s{seed}"
            shutil.copytree(study.folder / name, folder / name)
            path = folder / name / "result.json"
            content = json.loads(path.read_text())
            content["metrics"]["top1_pct"] += change if seed % 2 else -change
            content["cost"]["wall_s"] = 61.0
            path.write_text(json.dumps(content))
    return folder


def analysed(study: Study, *more: Path) -> Analysis:
    return analyse(study, collect([study], toy_cells(study), more))


def report(study: Study, out: Path, *more: Path) -> str:
    write_report([study], more, out, toy_cells(study), bootstrap=False)
    return (out / "report.md").read_text()


def test_they_are_counted_in_one_note_and_change_no_verdict(study: Study, tmp_path: Path) -> None:
    plain, found = analysed(study), analysed(study, once_more(study, tmp_path / "again", 2.0))
    assert found.comparisons == plain.comparisons
    assert found.flips == plain.flips
    assert len(found.repetitions) == 24
    (note,) = found.notes
    assert note.startswith("24 cells were trained once more and count in no verdict")


def test_their_spread_stands_beside_that_of_seeds(study: Study, tmp_path: Path) -> None:
    text = report(study, tmp_path / "out", once_more(study, tmp_path / "again", 2.0))
    (row,) = [
        line for line in text.splitlines() if line.startswith("| top-1 %") and "| 24 |" in line
    ]
    # changes of +2 and -2: deviation 2 * sqrt(24 / 23), of one training 1 / sqrt(2) of that
    assert row.split(" | ")[2:4] == ["+0.00", "1.44"]
    spread = float(row.split(" | ")[4].strip(" |"))
    of_seeds = [
        analysed(study).groups[0].values(variant, "top1_pct").values() for variant in study.variants
    ]
    squares = [sum((v - sum(vs) / 6) ** 2 for v in vs) for vs in map(list, of_seeds)]
    assert spread == pytest.approx((sum(squares) / 20) ** 0.5, abs=0.005)


def test_they_are_judged_by_the_same_rule(study: Study, tmp_path: Path) -> None:
    folder = once_more(study, tmp_path / "again", 0.0)
    for seed in study.seeds:  # here the absolute term hurts
        write_result(folder, "classification", "absonly", seed, {"top1_pct": 70 + seed / 10})
    section = report(study, tmp_path / "out", folder).split("## The same cells once more")[1]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines()]
    (alone,) = [row for row in rows if "absolute alone: absonly - noenc" in row]
    assert alone[-2].startswith("helps (+4.")
    assert alone[-1].startswith("hurts (-9.")
    (on_top,) = [row for row in rows if "absolute on top: absrel - relonly" in row]
    assert on_top[-2] == on_top[-1]


def test_a_training_that_came_out_the_same_is_one_too(study: Study, tmp_path: Path) -> None:
    assert len(analysed(study, once_more(study, tmp_path / "again", 0.0)).repetitions) == 24
    shutil.copytree(study.folder, tmp_path / "copies")
    found = analysed(study, tmp_path / "copies")
    assert not found.repetitions
    assert all("left out, the same cell as" in note for note in found.notes)


def test_a_file_that_is_no_planned_cell_contradicts(study: Study, tmp_path: Path) -> None:
    place = ("classification", "noenc", 1, {"top1_pct": 99.0})
    path = write_result(tmp_path / "lone", *place, study=None)
    found = analysed(study, tmp_path / "lone")
    assert not found.repetitions
    assert f"{path}: contradicts " in found.notes[0]


def test_without_any_there_is_no_section(study: Study, tmp_path: Path) -> None:
    assert "once more" not in report(study, tmp_path / "out")
