"""The planner on the project's own configs."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from relpos_mm.engine.cli import load_config
from relpos_mm.engine.errors import UserError
from relpos_mm.engine.options import OptionAction
from relpos_mm.study.cell import Cell
from relpos_mm.study.cli import main
from relpos_mm.study.planning import plan
from relpos_mm.study.spec import ROOT, Study, parse_study, read_study

MINI = ROOT / "configs" / "mini"


def words(cell: Cell, step: str) -> list[str]:
    (found,) = [each.argv for each in cell.steps if each.name == step]
    return list(found)


def test_ids_are_stable_and_change_with_what_counts() -> None:
    study = read_study("smoke")
    cells = plan(study)
    assert [cell.id for cell in cells] == [cell.id for cell in plan(study)]
    assert len({cell.id for cell in cells}) == len(cells) == 6
    task = study.tasks["classification"]
    changed = replace(task, options={**task.options, "train_cfg.max_iters": 41})
    others = plan(replace(study, tasks={**study.tasks, "classification": changed}))
    # the classifier is another one, and so is everything that starts from it
    assert not {cell.id for cell in cells} & {cell.id for cell in others}


@pytest.mark.parametrize("change", [{"amp": True}, {"gpus": 2}])
def test_precision_and_processes_make_another_cell(change: dict[str, object]) -> None:
    study = read_study("smoke")
    tasks = {**study.tasks, "detection": replace(study.tasks["detection"], **change)}
    ids, others = ({cell.id for cell in plan(one)} for one in (study, replace(study, tasks=tasks)))
    assert {cell_id.split("-")[0] for cell_id in ids - others} == {"detection"}


def test_other_knobs_make_another_cell() -> None:
    study = replace(read_study("layout_knob"), variants=("noenc",), seeds=(1,))
    worlds = [{"a": {"layout_pct": percent}} for percent in (0, 100)]
    one, other = ({cell.id for cell in plan(replace(study, worlds=world))} for world in worlds)
    assert {cell_id.split("-")[0] for cell_id in one & other} == {"classification"}
    assert {cell_id.split("-")[0] for cell_id in one ^ other} == {"segmentation"}


def test_printed_commands_make_the_data_and_finish_the_cell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "small.yaml"
    content = yaml.safe_load((ROOT / "configs/studies/layout_knob.yaml").read_text())
    worlds = {"far": {"home_pct": 100}}
    changes = {"variants": ["noenc", "relonly"], "control": "noenc", "seeds": [1], "worlds": worlds}
    file.write_text(yaml.safe_dump({**content, **changes, "questions": None}))
    assert main(["plan", str(file), "--print"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "python tools/data.py make-mini --out data/studies/small/far --set home_pct=100",
        "python tools/data.py make-mini --out data/bdpq",
    ]
    ends = [line.rsplit(" && ", 1)[1] for line in lines if " && " in line]
    ids = [cell.id for cell in plan(read_study(file))]
    assert sorted(ends) == sorted(f"python tools/study.py finish {file} {one}" for one in ids)


def test_a_strange_cell_cannot_be_finished(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["finish", "smoke", "cls-noenc-s9-00000000"]) == 2
    assert "smoke has no cell cls-noenc-s9-00000000" in capsys.readouterr().err


def test_a_dense_cell_starts_from_its_own_classifier_and_keeps_evidence() -> None:
    cells = {(cell.task, cell.variant): cell for cell in plan(read_study("smoke"))}
    classifier, dense = cells["classification", "absrel"], cells["segmentation", "absrel"]
    assert dense.needs == (classifier.id,)
    start = f"{dense.folder}/start.pth"
    assert words(dense, "transfer") == [
        "tools/transfer.py",
        f"@last:{classifier.folder}",
        start,
        "--config",
        "configs/mini/upernet_swin_t_absrel.py",
    ]
    train = words(dense, "train")
    assert {"--resume", f"load_from={start}", "randomness.seed=1"} <= set(train)
    shifted = words(dense, "test-val_shift")
    assert "test_dataloader.dataset.data_prefix.img_path=img/val_shift" in shifted
    assert "protocol.name=bdpq-val_shift-single-scale" in shifted
    for cell in cells.values():  # of every training and test, whatever the config's metrics
        runs = [step for step in cell.steps if step.name != "transfer"]
        assert all("--evidence" in step.argv for step in runs)


def test_tools_take_the_options_of_every_step() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cfg-options", nargs="+", action=OptionAction)
    merged = {}
    for cell in plan(read_study("smoke")):
        for step in cell.steps:
            if cell.variant == "noenc" and "--cfg-options" in step.argv:
                texts = step.argv[step.argv.index("--cfg-options") :]
                options = parser.parse_args(texts).cfg_options
                merged[cell.task, step.name] = load_config(str(ROOT / step.argv[1]), options)
    assert merged["classification", "train"].train_cfg.max_iters == 40
    shifted = merged["segmentation", "test-val_shift"]
    assert shifted.test_dataloader.dataset.data_prefix.seg_map_path == "seg/val_shift"
    assert shifted.val_dataloader.dataset.data_prefix.seg_map_path == "seg/val"
    assert shifted.protocol.name == "bdpq-val_shift-single-scale"


def test_worlds_move_the_data_and_share_the_classifier() -> None:
    study = replace(read_study("layout_knob"), variants=("noenc",), seeds=(1,))
    worlds = {key: study.worlds[key] for key in ("left60.layout000", "all.layout100")}
    cells = plan(replace(study, worlds=worlds))
    assert [(cell.task, cell.world) for cell in cells] == [
        ("classification", ""),
        ("segmentation", "left60.layout000"),
        ("segmentation", "all.layout100"),
    ]
    assert {cell.needs for cell in cells[1:]} == {(cells[0].id,)}
    moved = "train_dataloader.dataset.data_root=data/studies/layout_knob/all.layout100/"
    assert moved in words(cells[2], "train")


def two(folder: Path, one: str, other: str) -> Study:
    base = f'_base_ = "{MINI}/_base_/cls_swin_t.py"\n'
    for name, text in (("one", one), ("two", other)):
        (folder / f"{name}.py").write_text(base + text)
    task = {"config": f"{folder}/{{variant}}.py", "metrics": ["top1_pct"]}
    content = {"title": "t", "variants": ["one", "two"], "seeds": [1], "control": "one"}
    return parse_study("t", {**content, "tasks": {"c": task}})


RELATIVE = 'model = dict(backbone=dict(position=[dict(type="RelativeBias")]))\n'


def test_cells_that_differ_elsewhere_are_refused_with_the_difference(tmp_path: Path) -> None:
    study = two(
        tmp_path,
        "model = dict(backbone=dict(position=[]))\n",
        RELATIVE + "optim_wrapper = dict(optimizer=dict(lr=0.5))\n",
    )
    with pytest.raises(UserError) as refused:
        plan(study)
    text = str(refused.value)
    assert "task c: its cells may differ in `position` and seed only" in text
    assert f"two.py: optim_wrapper.optimizer.lr is 0.5, but 0.001 in {tmp_path}/one.py" in text
    assert text.count("\n") == 1


def test_equal_encodings_are_no_two_variants(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"two\.py: has the encodings of"):
        plan(two(tmp_path, RELATIVE, RELATIVE))


def test_a_split_that_the_config_cannot_read_is_refused() -> None:
    study = replace(read_study("sign_flip"), variants=("noenc",), seeds=(1,))
    detection = replace(study.tasks["detection"], splits=("val_shift",))
    with pytest.raises(UserError, match=r"splits: val_shift .*cascade_swin_t_noenc\.py"):
        plan(replace(study, tasks={**study.tasks, "detection": detection}))


@pytest.mark.parametrize(
    ("task", "change", "message"),
    [
        ("classification", {"metrics": ("top1_pc",)}, "metrics: 'top1_pc' .* mean 'top1_pct'"),
        ("segmentation", {"metrics": ("box_ap",)}, "metrics: 'box_ap' is not known here"),
        ("segmentation", {"splits": ("val_nope",)}, "splits: val_nope: .* no img/val_nope"),
        ("classification", {"splits": ("val_shift",)}, "splits: val_shift: .* no .*cls/val_shift"),
        ("detection", {"tta": True}, "tta: .* has no tta_model"),
        ("detection", {"options": {"train_cfg.max_iterz": 3}}, "mean 'max_iters'"),
        ("detection", {"options": {"optim_wraper.lr": 3}}, "mean 'optim_wrapper'"),
        ("detection", {"options": {"train_cgf.max_iters": 3}}, "mean 'train_cfg'"),
        (
            "detection",
            {"options": {"param_scheduler.7.end": 3}},
            "param_scheduler.7 does not exist",
        ),
    ],
)
def test_what_a_config_does_not_have_is_refused(
    task: str, change: dict[str, Any], message: str
) -> None:
    study = replace(read_study("smoke"), variants=("noenc",))
    tasks = {**study.tasks, task: replace(study.tasks[task], **change)}
    with pytest.raises(UserError, match=rf"smoke\.yaml: tasks\.{task}, variant noenc: .*{message}"):
        plan(replace(study, tasks=tasks))


def test_an_encoding_that_nobody_made_is_refused(tmp_path: Path) -> None:
    study = two(tmp_path, RELATIVE, RELATIVE.replace("RelativeBias", "RelativeBios"))
    with pytest.raises(UserError, match=r"t\.yaml: tasks\.c, variant two: .*RelativeBios"):
        plan(study)


def test_a_world_that_a_task_does_not_read_is_refused() -> None:
    study = replace(read_study("smoke"), variants=("noenc",), worlds={"a": {}})
    real = replace(study.tasks["classification"], config="configs/cls_swin_t_{variant}.py")
    with pytest.raises(UserError, match="reads nothing from data/bdpq/; set shared"):
        plan(replace(study, tasks={"classification": replace(real, options={})}))


def test_a_missing_config_is_named() -> None:
    study = read_study("smoke")
    where = r"smoke\.yaml: tasks\.classification, variant nothing: .*cls_swin_t_nothing\.py"
    with pytest.raises(UserError, match=where):
        plan(replace(study, variants=("noenc", "nothing")))
