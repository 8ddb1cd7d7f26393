"""Study files: what is refused, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relpos_mm.engine.errors import UserError
from relpos_mm.study.cli import power_lines
from relpos_mm.study.spec import ROOT, parse_study, read_study

GOOD: dict[str, Any] = {
    "title": "t",
    "variants": ["noenc", "absonly", "absrel"],
    "seeds": [1, 2, 3, 4, 5, 6],
    "tasks": {
        "c": {"config": "c_{variant}.py", "metrics": ["top1_pct"]},
        "d": {"config": "d_{variant}.py", "metrics": ["box_ap"], "start": "c"},
    },
    "control": "noenc",
}


def test_a_control_makes_one_family_of_all_others() -> None:
    study = parse_study("s", GOOD)
    (question,) = study.questions
    assert question.pairs == (("absonly", "noenc"), ("absrel", "noenc"))
    assert "everything will be undecided at 5%; 7 seeds are needed" in power_lines(study)[0]


def test_questions_are_families_of_their_own() -> None:
    content = {k: v for k, v in GOOD.items() if k != "control"}
    study = parse_study("s", {**content, "questions": {"alone": ["absonly - noenc"]}})
    assert power_lines(study) == ["alone: 6 seeds, 1 comparison: smallest possible p 0.0312"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"variantz": []}, "no key 'variantz'; did you mean 'variants'"),
        ({"title": ""}, "title is missing"),
        ({"seeds": [1, 1]}, "no different numbers"),
        ({"seeds": [1.5]}, "no different numbers"),
        ({"control": "relonly"}, "control 'relonly' is no variant"),
        ({"questions": {"q": ["absonly - noenc"]}}, "either control or questions"),
        ({"control": None, "questions": {"q": ["absonly noenc"]}}, "'absonly noenc' is not"),
        ({"control": None, "questions": {"q": ["noenc - noenc"]}}, "'noenc - noenc' is not"),
        ({"tasks": {"c": {"config": "c.py", "metrics": ["m"]}}}, r"must contain \{variant\}"),
        ({"tasks": {"c": {"config": "{variant}", "metrics": []}}}, "metrics is missing"),
        (
            {"tasks": {"c": {"config": "{variant}", "metrics": ["m"], "start": "x"}}},
            "start: 'x' is no task",
        ),
        (
            {"tasks": {"c": {**GOOD["tasks"]["c"], "options": {"randomness.seed": 3}}}},
            "the seed is the cell's",
        ),
        ({"executor": {"kind": "cloud"}}, "neither local nor slurm"),
        ({"executor": {"jobs": 0}}, "at least 1"),
        ({"worlds": {"a": {"layout_pct": 1}}}, "worlds need data"),
        ({"level": "great"}, "level is 'great'"),
    ],
)
def test_refusals_name_the_key(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_study("s", {**GOOD, **change})


def test_a_missing_study_names_those_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="sign_flip_mini"):
        read_study("sign_flop")
    (tmp_path / "bad.yaml").write_text("a: [")
    with pytest.raises(UserError, match=r"bad\.yaml: not YAML"):
        read_study(tmp_path / "bad.yaml")


def test_committed_studies_can_decide_every_question() -> None:
    files = sorted((ROOT / "configs" / "studies").glob("*.yaml"))
    assert len(files) >= 6
    for file in files:
        study = read_study(file)
        assert file.read_text().count("\n") <= 45, file
        if file.stem != "smoke":  # one seed, for the machinery
            assert not any("undecided" in line for line in power_lines(study)), file
        for task in study.tasks.values():
            for variant in study.variants:
                assert (ROOT / task.config.format(variant=variant)).is_file()
