"""Which copied results are compared, which are only shown, and which are left out by name."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relpos_mm.engine.errors import UserError
from relpos_mm.study.analysis import Analysis, analyse
from relpos_mm.study.cli import main
from relpos_mm.study.records import collect
from relpos_mm.study.report import write_report
from relpos_mm.study.spec import Study

from .toys import toy_cells, toy_study, whole_study, write_result

Edit = Callable[[dict[str, Any]], Any]
PRETRAINED = "/mnt/{}/weights/{}.pth"
CONFIG: dict[str, Any] = {
    "model": {
        "backbone": {"init_cfg": {"checkpoint": PRETRAINED.format("a", "swin")}, "position": []}
    },
    "custom_hooks": [{"type": "ResultHook"}],
    "auto_scale_lr": {"enable": False},
    "val_dataloader": {"dataset": {"data_root": "/mnt/a/coco/", "pipeline": [{"type": "Load"}]}},
    "randomness": {"seed": 1},
    "load_from": "runs/detection-noenc-s1/start.pth",
}
START = "runs/detection-{0}-s{1}/start.pth (made from /a/classification-{0}-s{1}/iter_30.pth)"


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    return toy_study(tmp_path, monkeypatch)


def detection(folder: Path, variant: str, seed: int, edit: Edit | None = None) -> Path:
    """Write a model that started from its own classifier, as ``edit`` changes the file."""
    config = copy.deepcopy(CONFIG)
    config["model"]["backbone"]["position"] = [variant]
    config["randomness"]["seed"] = seed
    config["load_from"] = f"runs/detection-{variant}-s{seed}/start.pth"
    path = write_result(
        folder,
        "detection",
        variant,
        seed,
        {"box_ap": round(0.4 + seed / 100, 2)},
        config_content=config,
        position_transferred=True,
        start={
            "weights": {"backbone": {START.format(variant, seed): 9, "random initial values": 2}}
        },
        checkpoint=f"/a/runs/detection-{variant}-s{seed}/iter_10.pth",
    )
    if edit is not None:
        content = json.loads(path.read_text())
        edit(content)
        path.write_text(json.dumps(content))
    return path


def put(where: str, value: Any) -> Edit:
    """Return an edit that sets a dotted key, or drops it where ``value`` is ``...``."""

    def edit(content: dict[str, Any]) -> None:
        *parents, last = where.split(".")
        for key in parents:
            content = content[key]
        if value is ...:
            del content[last]
        else:
            content[last] = value

    return edit


def from_scratch(content: dict[str, Any]) -> None:
    content["position_transferred"] = None
    content["start"]["weights"] = {"backbone": {"random initial values": 11}}
    content["config_content"]["load_from"] = None


def resumed(content: dict[str, Any]) -> None:
    name = content["cell"]["id"]
    content["config_content"]["load_from"] = f"elsewhere/{name}/iter_5.pth"
    content["checkpoint"] = f"/a/runs/{name}/iter_10.pth"
    content["start"]["weights"] = {"backbone": {f"elsewhere/{name}/iter_5.pth": 11}}


def analysed(study: Study, copied: Path) -> Analysis:
    return analyse(study, collect([study], toy_cells(study), [copied]))


def compared(found: Analysis) -> list[int]:
    return [c.difference.n for c in found.comparisons if c.metric == "box_ap" and c.difference.n]


WEIGHTS = "config_content.model.backbone.init_cfg.checkpoint"
OTHER_TRAININGS = {
    "from scratch": from_scratch,
    "encodings not transferred": put("position_transferred", False),
    "from another kind of file": put("config_content.load_from", "/a/coco_mask_rcnn.pth"),
    "half trained": put("validated_at.iter", 5),
    "other weights": put(WEIGHTS, PRETRAINED.format("a", "swin_22k")),
    "another hook": put("config_content.custom_hooks", [{"type": "EMAHook"}]),
    "scaled rates": put("config_content.auto_scale_lr.enable", True),
    "other validation": put("config_content.val_dataloader.dataset.pipeline", []),
    "mixed precision": put("precision.training", "float16"),
    "other data": put("data_sha256", "e" * 64),
    "no config": put("config_content", ...),
    "no data hash": put("data_sha256", ...),
    "no length": put("validated_at", ...),
    "a test": put("phase", "test"),
}


@pytest.mark.parametrize("edit", OTHER_TRAININGS.values(), ids=OTHER_TRAININGS)
def test_another_training_is_shown_and_compared_with_nothing(
    study: Study, tmp_path: Path, edit: Edit
) -> None:
    for seed in study.seeds:
        detection(study.folder, "noenc", seed)
        detection(tmp_path / "copied", "absonly", seed, edit)
    found = analysed(study, tmp_path / "copied")
    assert compared(found) == []
    assert sorted(v for group in found.groups for v in group.records) == ["absonly", "noenc"]
    assert any("compared with" in note for note in found.notes)


@pytest.mark.parametrize("key", ["config_content", "data_sha256", "validated_at"])
def test_what_no_file_says_is_unknown_and_not_equal(study: Study, tmp_path: Path, key: str) -> None:
    for variant in ("noenc", "absonly"):
        detection(tmp_path / "copied", variant, 1, put(key, ...))
    found = analysed(study, tmp_path / "copied")
    assert found.comparisons == []
    assert [list(group.records) for group in found.groups] == [["noenc"], ["absonly"]]
    assert f"do not say their {key}; they are shown" in "\n".join(found.notes)


MACHINES = {
    "as it is": lambda content: None,
    "other folders": put(WEIGHTS, PRETRAINED.format("b", "swin")),
    "other data folder": put("config_content.val_dataloader.dataset.data_root", "/b/COCO/"),
    "more loaders": put("config_content.val_dataloader.num_workers", 4),
    "weights named by the cell": put(
        "config_content.load_from", "/b/detection-absonly-s1/start.pth"
    ),
    "resumed": resumed,
}


@pytest.mark.parametrize("edit", MACHINES.values(), ids=MACHINES)
def test_the_same_training_on_another_machine_is_compared(
    study: Study, tmp_path: Path, edit: Edit
) -> None:
    detection(study.folder, "noenc", 1)
    detection(tmp_path / "copied", "absonly", 1, edit)
    assert compared(analysed(study, tmp_path / "copied")) == [1]


def test_a_resumed_training_that_nobody_planned_has_an_unknown_start(
    study: Study, tmp_path: Path
) -> None:
    def edit(content: dict[str, Any]) -> None:
        resumed(content)
        content["cell"]["id"] = "another"

    detection(study.folder, "noenc", 1)
    detection(tmp_path / "copied", "absonly", 1, edit)
    found = analysed(study, tmp_path / "copied")
    assert compared(found) == []
    assert "do not say their start (resumed)" in "\n".join(found.notes)


def test_a_name_that_is_not_the_encoding_is_left_out(study: Study, tmp_path: Path) -> None:
    detection(study.folder, "noenc", 1)
    detection(study.folder, "absonly", 1)
    wrong = put("config_content.model.backbone.position", [])
    path = detection(tmp_path / "copied", "absonly", 2, wrong)
    found = analysed(study, tmp_path / "copied")
    assert sorted(found.groups[0].records["absonly"]) == [1]
    assert f"{path}: left out, it is called absonly, but its encodings are" in found.notes[0]


def test_other_seeds_are_flagged_and_other_worlds_left_out(study: Study, tmp_path: Path) -> None:
    for variant in ("noenc", "absonly"):
        for seed in (91, 92):
            detection(tmp_path / "copied", variant, seed)
    detection(tmp_path / "copied", "absonly", 93, put("cell.world", "mars"))
    found = analysed(study, tmp_path / "copied")
    assert compared(found) == [2]
    told = "\n".join(found.notes)
    assert "detection, toy-val: seeds [91, 92] are not of the study, and count in its" in told
    assert "left out, its world is 'mars', and detection has ''" in told


def test_results_of_other_studies_are_counted_and_shared_cells_are_used(
    study: Study, tmp_path: Path
) -> None:
    detection(tmp_path / "copied", "noenc", 1, put("cell.study", "its twin"))
    for seed in (2, 3):
        path = detection(tmp_path / "copied", "noenc", seed, put("cell.study", "another"))
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, "cell": {**content["cell"], "id": "x"}}))
    found = analysed(study, tmp_path / "copied")
    assert list(found.groups[0].records["noenc"]) == [1]
    assert "results of other studies were left out: another 2" in found.notes


MALFORMED = {
    "tests": [1],
    "protocol": "x",
    "precision": "float32",
    "cost": "x",
    "cost.params": "many",
    "versions": ["torch"],
    "data_sha256": ["d"],
    "config_content": [1],
    "cell.world": ["a"],
    "cell.seed": True,
    "start.weights": 3,
}


@pytest.mark.parametrize(("key", "value"), MALFORMED.items(), ids=MALFORMED)
def test_a_malformed_file_is_left_out_by_file_and_key(
    study: Study, tmp_path: Path, key: str, value: Any
) -> None:
    detection(study.folder, "noenc", 1)
    path = detection(tmp_path / "copied", "absonly", 1, put(key, value))
    write_report([study], [tmp_path / "copied"], tmp_path / "out", toy_cells(study), False)
    text = (tmp_path / "out" / "report.md").read_text()
    assert f"Note: {path}: left out, {key} is {json.dumps(value)}, not " in text


@pytest.mark.parametrize("value", [True, "0.4", [0.4]])
def test_what_is_no_number_is_none(study: Study, tmp_path: Path, value: Any) -> None:
    path = detection(tmp_path / "copied", "noenc", 1, put("metrics.box_ap", value))
    found = analysed(study, tmp_path / "copied")
    assert found.groups[0].values("noenc", "box_ap") == {1: None}
    assert f"{path}: metrics.box_ap is {json.dumps(value)}, no number" in found.notes


def test_repeats_are_equal_other_recipes_or_contradictions(study: Study, tmp_path: Path) -> None:
    own = detection(study.folder, "noenc", 1)
    same = detection(tmp_path / "copied" / "1", "noenc", 1)
    other = detection(tmp_path / "copied" / "2", "noenc", 1, from_scratch)
    clash = detection(tmp_path / "copied" / "3", "noenc", 1, put("metrics.box_ap", 0.9))
    found = analysed(study, tmp_path / "copied")
    values = [group.values("noenc", "box_ap") for group in found.groups]
    assert values == [{1: 0.41}, {1: 0.41}]
    told = "\n".join(found.notes)
    assert f"{same}: left out, the same cell as {own}" in told
    assert f"{other}: the same cell as {own}, but under another protocol" in told
    assert f"{clash}: contradicts {own}" in told


def test_of_two_copies_that_contradict_none_is_believed(study: Study, tmp_path: Path) -> None:
    detection(tmp_path / "copied" / "1", "noenc", 1)
    detection(tmp_path / "copied" / "2", "noenc", 1, put("metrics.box_ap", 0.9))
    found = analysed(study, tmp_path / "copied")
    assert found.groups == []
    assert "both are left out" in "\n".join(found.notes)


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "cannot be read"), ("{", "cannot be read"), ("{}", "no result")]
)
def test_a_spoilt_own_result_is_named(
    study: Study, tmp_path: Path, content: str | None, problem: str
) -> None:
    detection(study.folder, "absonly", 1)
    path = detection(study.folder, "noenc", 1)
    (path.parent / "done").mkdir()
    (path.parent / "done" / "train").touch()
    path.unlink() if content is None else path.write_text(content)
    write_report([study], [], tmp_path / "out", toy_cells(study), False)
    text = (tmp_path / "out" / "report.md").read_text()
    (row,) = [line for line in text.splitlines() if line.startswith("| detection-noenc-s1 |")]
    assert "| spoilt result |" in row
    assert f"{path}: " in row
    assert problem in row


def test_paths_are_refused_by_name(study: Study, tmp_path: Path) -> None:
    whole_study(study)
    page = tmp_path / "some.md"
    page.touch()
    for results, out, match in (
        ([page], tmp_path / "out", r"--results: .*some\.md is no \.json file"),
        ([], page, r"--out: .*some\.md is a file"),
        ([], page / "below", r"--out: .*some\.md is a file"),
    ):
        with pytest.raises(UserError, match=match):
            write_report([study], results, out, toy_cells(study), False)


def test_a_command_with_nothing_to_report_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = toy_study(tmp_path, monkeypatch)
    monkeypatch.setattr("relpos_mm.study.cli.read_study", lambda path: study)
    monkeypatch.setattr("relpos_mm.study.planning.plan", toy_cells)
    assert main(["report", "toy", "--results", str(tmp_path)]) == 2
    assert "study: no result of toy found in" in capsys.readouterr().err


def test_figures_of_an_older_report_are_removed(study: Study, tmp_path: Path) -> None:
    whole_study(study)
    out = tmp_path / "out"
    out.mkdir()
    for name in ("figure_77.svg", "figure_of_mine.svg"):
        (out / name).write_text("<svg>")
    write_report([study], [], out, toy_cells(study), False)
    assert not (out / "figure_77.svg").exists()
    assert (out / "figure_of_mine.svg").exists()
    assert (out / "figure_01.svg").exists()
