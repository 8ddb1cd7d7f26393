"""Cells that were trained once more: shown beside the first ones, and in no verdict."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

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


def edit(path: Path, **changes: Any) -> Path:
    """Change parts of a result file; of parts that are dictionaries some keys."""
    content = json.loads(path.read_text())
    for key, value in changes.items():
        content[key] = {**content.get(key, {}), **value}
    path.write_text(json.dumps(content))
    return path


def once_more(
    study: Study, folder: Path, change: float, seeds: Sequence[int] = (), wall_s: float = 61.0
) -> Path:
    """Repeat classifiers; of odd seeds the metric is higher by ``change``, of even ones lower."""
    for variant in study.variants:
        for seed in seeds or study.seeds:
            name = f"classification-{variant}-s{seed}"
            shutil.copytree(study.folder / name, folder / name)
            path = folder / name / "result.json"
            top1 = json.loads(path.read_text())["metrics"]["top1_pct"]
            metrics = {"top1_pct": top1 + (change if seed % 2 else -change)}
            edit(path, metrics=metrics, cost={"wall_s": wall_s})
    return folder


def rows_of(text: str, word: str) -> list[list[str]]:
    """Return the cells of the rows of the section that hold a word."""
    section = text.split("## The same cells once more")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if word in line]
    return [[cell.strip() for cell in row] for row in rows]


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
    (row,) = [row for row in rows_of(text, "top-1 %") if row[1] == "24"]
    # changes of +2 and -2: deviation 2 * sqrt(24 / 23), of one training 1 / sqrt(2) of that
    assert row[2:4] == ["+0.00", "1.44"]
    values = [analysed(study).groups[0].values(v, "top1_pct").values() for v in study.variants]
    squares = [sum((v - sum(vs) / 6) ** 2 for v in vs) for vs in map(list, values)]
    assert float(row[4]) == pytest.approx((sum(squares) / 20) ** 0.5, abs=0.005)
    assert rows_of(text, "classification |")[0] == ["classification", *["1, 2, 3, 4, 5, 6"] * 4]


def test_one_repeated_seed_has_no_spread(study: Study, tmp_path: Path) -> None:
    folder = once_more(study, tmp_path / "again", 0.5, seeds=[2])
    for name in ("absonly", "absrel", "relonly"):
        shutil.rmtree(folder / f"classification-{name}-s2")
    text = report(study, tmp_path / "out", folder)
    (row,) = rows_of(text, "top-1 %")
    assert row[1:4] == ["1", "-0.50", "n/a"]
    assert rows_of(text, "classification |") == [["classification", "2", "none", "none", "none"]]


def test_a_repetition_without_a_number_is_left_out_of_the_spread(
    study: Study, tmp_path: Path
) -> None:
    folder = once_more(study, tmp_path / "again", 1.0, seeds=[1, 3])
    edit(folder / "classification-noenc-s1" / "result.json", metrics={"top1_pct": None})
    (row, *_) = rows_of(report(study, tmp_path / "out", folder), "top-1 %")
    assert row[1:4] == ["7", "+1.00", "0.00"]


def test_they_are_judged_by_the_same_rule(study: Study, tmp_path: Path) -> None:
    folder = once_more(study, tmp_path / "again", 0.0)
    for seed in study.seeds:  # here the absolute term hurts
        write_result(folder, "classification", "absonly", seed, {"top1_pct": 70 + seed / 10})
        edit(folder / f"classification-absonly-s{seed}" / "result.json", cost={"wall_s": 61.0})
    text = report(study, tmp_path / "out", folder)
    (alone,) = rows_of(text, "absolute alone: absonly - noenc")
    assert alone[-2].startswith("helps (+4.")
    assert alone[-1].startswith("hurts (-9.")
    (on_top,) = rows_of(text, "absolute on top: absrel - relonly")
    assert on_top[-2] == on_top[-1]


def test_a_training_that_came_out_the_same_is_one_too(study: Study, tmp_path: Path) -> None:
    assert len(analysed(study, once_more(study, tmp_path / "again", 0.0)).repetitions) == 24
    shutil.copytree(study.folder, tmp_path / "copies")
    found = analysed(study, tmp_path / "copies")
    assert not found.repetitions
    assert all("left out, the same cell as" in note for note in found.notes)


def test_the_code_of_repetitions_is_named(study: Study, tmp_path: Path) -> None:
    folder = once_more(study, tmp_path / "again", 1.0)
    edit(folder / "classification-noenc-s1" / "result.json", versions={"torch": "3.0"})
    text = report(study, tmp_path / "out", folder)
    assert rows_of(text, "torch") == [["torch 2.14.1", "23"], ["torch 3.0", "1"]]
    assert "torch 3.0" not in text.split("versions that trained the cells")[1]


def test_one_repetition_of_a_cell_is_taken(study: Study, tmp_path: Path) -> None:
    first = once_more(study, tmp_path / "b", 1.0, seeds=[1])
    shutil.copytree(first, tmp_path / "copy of b")
    third = once_more(study, tmp_path / "c", 2.0, seeds=[1], wall_s=62.0)
    found = analysed(study, first, tmp_path / "copy of b", third)
    assert len(found.repetitions) == 4
    assert {each.again.path.parents[1].name for each in found.repetitions} == {"b"}
    told = "\n".join(found.notes)
    assert told.count("left out, the same training as the repeated cell") == 4
    assert told.count("left out, a further training of the repeated cell") == 4


def test_other_numbers_of_the_same_training_are_a_contradiction(
    study: Study, tmp_path: Path
) -> None:
    folder = once_more(study, tmp_path / "backup", 1.0, seeds=[1], wall_s=60.0)
    found = analysed(study, folder)
    assert not found.repetitions
    assert sum("contradicts" in note and "it is left out" in note for note in found.notes) == 4


def test_more_protocols_of_a_repetition_are_shown(study: Study, tmp_path: Path) -> None:
    folder = once_more(study, tmp_path / "again", 1.0, seeds=[1])
    path = folder / "classification-noenc-s1" / "result.json"
    content = json.loads(path.read_text())
    part = {"metrics": {"top1_pct": 90.0}, "protocol": {"name": "flipped"}, "data_sha256": "d" * 64}
    path.write_text(json.dumps({**content, "tests": {"flipped": part}}))
    found = analysed(study, folder)
    assert len(found.repetitions) == 4
    shown = {group.protocol: group for group in found.groups if group.task == "classification"}
    assert list(shown["flipped"].records) == ["noenc"]
    assert any("but under another protocol" in note for note in found.notes)


def test_a_study_tells_its_own_repetitions_alone(study: Study, tmp_path: Path) -> None:
    other = replace(study, name="other")
    write_result(other.folder, "detection", "noenc", 1, {"box_ap": 0.4}, study="other")
    folder = once_more(study, tmp_path / "again", 1.0)
    cells = [*toy_cells(study), *toy_cells(other)]
    found = collect([study, other], cells, [folder])
    assert len(analyse(study, found).repetitions) == 24
    assert not analyse(other, found).repetitions
    assert not any("trained once more" in note for note in analyse(other, found).notes)


def test_a_file_that_is_no_planned_cell_contradicts(study: Study, tmp_path: Path) -> None:
    place = ("classification", "noenc", 1, {"top1_pct": 99.0})
    path = write_result(tmp_path / "lone", *place, study=None)
    found = analysed(study, tmp_path / "lone")
    assert not found.repetitions
    assert f"{path}: contradicts " in found.notes[0]


def test_without_any_there_is_no_section(study: Study, tmp_path: Path) -> None:
    assert "once more" not in report(study, tmp_path / "out")
