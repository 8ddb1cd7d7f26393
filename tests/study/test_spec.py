"""Study files: what is refused, by name."""

from __future__ import annotations

import copy
import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relpos_mm.engine.errors import UserError
from relpos_mm.study.cli import power_lines
from relpos_mm.study.spec import ROOT, knob_settings, parse_study, read_study
from relpos_mm.study.strict import read_yaml

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
        ({"variants": 5}, "variants: 5 is not a list"),
        ({"variants": "noenc"}, "variants: 'noenc' is not a list"),
        ({"variants": [True, "noenc"]}, r"variants\[0\]: True is not text; put it in quotes"),
        ({"variants": ["noenc", "a/../x"]}, "variants: 'a/../x' would be in the names of folders"),
        ({"variants": ["noenc", "absrel", "noenc"]}, "variants: 'noenc' is given twice"),
        ({"variants": ["noenc"]}, "control: 'noenc' is the only variant"),
        ({"seeds": 3}, "seeds: 3 is not a list"),
        ({"seeds": [2**32]}, "seeds: .* whole numbers from 0 to 4294967295"),
        ({"title": 5}, "title: 5 is not text"),
        ({"control": ["noenc"]}, "control: .* is not text"),
        ({"paper": "swin_table5"}, "paper: 'swin_table5' is not known .* mean 'swin_table4'"),
        ({"tasks": ["a"]}, "tasks: .* is not keys with values"),
        ({"tasks": {"c": None}}, "tasks.c must be keys with values"),
        ({"tasks": {3: GOOD["tasks"]["c"]}}, "tasks: key 3 is not text"),
        ({"tasks": {"a/../../x": GOOD["tasks"]["c"]}}, "tasks: 'a/../../x' would be in the names"),
        ({"executor": {"jobs": 1.5}}, "executor.jobs: 1.5 is not a whole number"),
        ({"executor": {"jobs": True}}, "executor.jobs: True is not a whole number"),
        ({"executor": {"jobs": "2"}}, "executor.jobs: '2' is not a whole number"),
        ({"executor": {"parameters": [1]}}, "executor.parameters: .* is not keys with values"),
        ({"control": None, "questions": {"q": None}}, "questions.q: None is not a list"),
        ({"control": None, "questions": {"q": []}}, "questions.q compares nothing"),
        ({"control": None, "questions": {"q": ["absrel - noenc"] * 2}}, "is asked already"),
        (
            {"control": None, "questions": {"q": ["absrel - noenc", "noenc - absrel"]}},
            "'noenc - absrel' is asked already",
        ),
    ],
)
def test_refusals_name_the_key(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_study("s", {**GOOD, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": 5}, "config: 5 is not text"),
        ({"config": "{x}_{variant}.py"}, "config: .* has braces besides"),
        ({"metrics": "top1_pct"}, "metrics: 'top1_pct' is not a list"),
        ({"metrics": 5}, "metrics: 5 is not a list"),
        ({"metrics": ["a", "a"]}, "metrics: 'a' is given twice"),
        ({"splits": "val_shift"}, "splits: 'val_shift' is not a list"),
        ({"splits": ["val_shift", "val_shift"]}, "splits: 'val_shift' is given twice"),
        ({"splits": ["val"]}, "splits: 'val' is tested anyway"),
        ({"start": ["c"]}, r"start: \['c'\] is not text"),
        ({"gpus": "two"}, "gpus: 'two' is not a whole number"),
        ({"gpus": 1.5}, "gpus: 1.5 is not a whole number"),
        ({"gpus": -1}, "gpus: -1 is below 0"),
        ({"hours": "ten"}, "hours: 'ten' is not a number"),
        ({"hours": -1}, "hours: -1 is no time"),
        ({"hours": float("nan")}, "hours: nan is no time"),
        ({"tta": "no"}, "tta: 'no' is not true or false"),
        ({"amp": "false"}, "amp: 'false' is not true or false"),
        ({"shared": 0}, "shared: 0 is not true or false"),
        ({"options": ["a=b"]}, "options: .* is not keys with values"),
        ({"options": {"load_from": "x.pth"}}, "options sets 'load_from': name the task to start"),
        ({"options": {"randomness": {"seed": 3}}}, "options sets 'randomness': the seed is"),
        ({"options": {"model.backbone.position": []}}, "options sets .* what variants differ in"),
        ({"options": {"work_dir": "x"}}, "options sets 'work_dir': every cell has its own"),
        ({"options": {"resume": True}}, "options sets 'resume': every cell resumes"),
    ],
)
def test_refusals_name_the_task(change: dict[str, Any], message: str) -> None:
    tasks = {**GOOD["tasks"], "d": {**GOOD["tasks"]["d"], **change}}
    with pytest.raises(UserError, match=rf"^tasks\.d\.{message}"):
        parse_study("s", {**GOOD, "tasks": tasks})


@pytest.mark.parametrize(
    ("worlds", "message"),
    [
        ({}, "has none"),
        (["a"], "is not keys with values"),
        ({"a": None}, "a: None is not keys with values"),
        ({"": {}}, "'' would be in the names of folders"),
        ({"..": {}}, r"'\.\.' would be in the names of folders"),
        ({"a": {"layout": 5}}, "a: unknown knob 'layout'"),
        ({"a": {"layout_pct": 500}}, "a: layout_pct=500: layout_pct must be from 0 to 100"),
        ({"a": {"layout_pct": True}}, "a: .*whole numbers are needed"),
        ({"a": {"letters": [4, 2]}}, "a: .*LOW,HIGH"),
        ({"a": {"noise": 8}, "b": {}}, "'b' has the knobs of 'a'"),  # 8 is the default
    ],
)
def test_impossible_worlds_are_refused(worlds: Any, message: str) -> None:
    with pytest.raises(UserError, match=f"^worlds.*{message}"):
        parse_study("s", {**GOOD, "data": "bdpq", "worlds": worlds})


def test_a_shared_task_starts_from_a_shared_one() -> None:
    tasks = {**GOOD["tasks"], "d": {**GOOD["tasks"]["d"], "shared": True}}
    with pytest.raises(UserError, match=r"tasks\.d\.shared: 'c', .* is not shared"):
        parse_study("s", {**GOOD, "tasks": tasks, "data": "bdpq", "worlds": {"a": {}}})


def test_knobs_of_worlds_reach_the_generator_as_it_reads_them() -> None:
    assert knob_settings({"letters": [2, 5], "noise": 3}) == ["letters=2,5", "noise=3"]


WHOLE: dict[str, Any] = {
    **GOOD,
    "level": "mechanism",
    "data": "bdpq",
    "paper": "swin_table4",
    "worlds": {"a": {"layout_pct": 50}},
    "executor": {"kind": "slurm", "jobs": 2, "parameters": {"timeout_min": 5}},
    "tasks": {
        "c": {
            **GOOD["tasks"]["c"],
            "options": {"train_cfg.max_iters": 3},
            "splits": ["val_shift"],
            "tta": True,
            "gpus": 1,
            "hours": 1.5,
            "amp": True,
            "shared": True,
            "start": None,
        }
    },
}
STRANGE = (
    *(None, True, -1, 2**70, 1.5, float("nan"), "", "x", "a - b", b"x", datetime.date(2026, 1, 1)),
    *([], [None], [[]], [{}], ["x"], ["x", "x"], {}, {None: 1}, {"x": None}, {"x": []}, {"x": {}}),
)


def places(content: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    keys = range(len(content)) if isinstance(content, list) else content
    for key in keys if isinstance(content, (dict, list)) else ():
        yield (*at, key)
        yield from places(content[key], (*at, key))


@pytest.mark.parametrize("stated", [{"control": "noenc"}, {"questions": {"q": ["absrel - noenc"]}}])
def test_a_strange_value_anywhere_is_read_or_refused(stated: dict[str, Any]) -> None:
    whole = {**{key: value for key, value in WHOLE.items() if key != "control"}, **stated}
    parse_study("s", whole)
    refused = 0
    for *above, key in [("all",), *places(whole, ("all",))]:
        for value in STRANGE:
            content = {"all": copy.deepcopy(whole)}
            node: Any = content
            for name in above:
                node = node[name]
            node[key] = value
            try:
                parse_study("s", content["all"])
            except UserError:
                refused += 1
    assert refused > 500


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [", "not YAML"),
        (b"title: 2026-13-45", "not YAML"),
        (b"", "must be keys with values"),
        (b"\xff\xfe\x00a", "not UTF-8"),
        (b"title: a\nseeds: [1]\ntitle: b\n", "line 3 gives 'title' again"),
        (b"worlds: {a: {}, a: {}}\n", "line 1 gives 'a' again"),
    ],
)
def test_files_that_are_no_clean_yaml_are_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "bad.yaml").write_bytes(content)
    with pytest.raises(UserError, match=rf"bad\.yaml: .*{message}"):
        read_study(tmp_path / "bad.yaml")


def test_merged_keys_are_no_repeated_ones(tmp_path: Path) -> None:
    (tmp_path / "merged.yaml").write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\n")
    assert read_yaml(tmp_path / "merged.yaml")["b"] == {"x": 3, "y": 2}


@pytest.mark.parametrize("path", ["", "x" * 300, "no\0file"])
def test_paths_that_are_none_are_not_found(path: str) -> None:
    with pytest.raises(UserError, match="Study not found"):
        read_study(path)


def test_a_folder_is_no_study(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a folder, not a file"):
        read_study(tmp_path)
    (tmp_path / "a,b.yaml").write_text("title: t")
    with pytest.raises(UserError, match="the file's name: 'a,b' would be in the names"):
        read_study(tmp_path / "a,b.yaml")


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
