"""Deliberately broken configs are refused with file, key, value and remedy."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from mmengine.config import Config

import relpos_mm  # noqa: F401  registers what the configs name
from relpos_mm.checks import check_options, check_tree
from relpos_mm.checks.keys import check_keys
from relpos_mm.checks.leaves import differences
from relpos_mm.checks.tree import check_file

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"


def load(name: str) -> Config:
    return Config.fromfile(CONFIGS / f"{name}.py")


def write(folder: Path, name: str, base: str, body: str) -> Path:
    path = folder / f"{name}.py"
    path.write_text(f'_base_ = "{CONFIGS / base}.py"\n{body}\n')
    return path


def refusals(path: Path) -> str:
    return "\n".join(str(problem) for problem in check_tree(path, progress=lambda line: None))


def test_refuses_an_unknown_top_level_name(tmp_path: Path) -> None:
    path = write(tmp_path, "x_relonly", "cls_swin_t_relonly", "optim_wraper = dict(clip_grad=None)")
    assert f"{path}: optim_wraper = dict(clip_grad=None)" in refusals(path)
    assert "Did you mean 'optim_wrapper'" in refusals(path)


@pytest.mark.parametrize(
    "body",
    [
        "optim_wraper: dict = dict()",
        "optim_wraper, model = 1, 2",
        "if model:\n    optim_wraper = 1",
    ],
)
def test_no_form_of_assignment_hides_an_unknown_name(tmp_path: Path, body: str) -> None:
    path = tmp_path / "x_relonly.py"
    path.write_text(f"model = dict()\n{body}\n")
    (problem,) = check_keys(path)
    assert problem.key == "optim_wraper"


def test_refuses_a_base_variable_that_reaches_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "x_relonly", "upernet_swin_t_relonly", "crop_size = (256, 256)")
    assert "crop_size = (256, 256): the base file has used this variable already" in refusals(path)


def test_accepts_a_variable_that_the_file_uses(tmp_path: Path) -> None:
    body = "size = 64\ntrain_dataloader = dict(batch_size=size)"
    assert refusals(write(tmp_path, "x_relonly", "cls_swin_t_relonly", body)) == ""


def test_refuses_options_that_reach_nothing() -> None:
    options = {"train_cfg.max_iters": 2, "optim_wraper.clip_grad": None, "data_root": "/elsewhere"}
    config = load("upernet_swin_t_relonly")
    typo, variable = map(str, check_options(Path("x.py"), config, options))
    assert typo.startswith("x.py: optim_wraper.clip_grad = None: nothing reads")
    assert "Did you mean 'optim_wrapper'" in typo
    assert variable.startswith("x.py: data_root = '/elsewhere': the base file has used this")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("model = dict(", "was never closed"),
        ("_base_ = './nowhere.py'", "nowhere.py"),
        ("work_dir = 'x'", "it has no model; bases belong"),
    ],
)
def test_refuses_a_file_that_cannot_be_read(tmp_path: Path, body: str, message: str) -> None:
    path = tmp_path / "x_relonly.py"
    path.write_text(body)
    assert f"{path}: _base_ = 'x_relonly.py': cannot be read: " in refusals(path)
    assert message in refusals(path)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("cascade_swin_t_relonly", "model.roi_head.bbox_head.1.num_classes"),
        ("cascade_swin_t_relonly", "model.roi_head.mask_head.num_classes"),
        ("upernet_swin_t_relonly", "model.auxiliary_head.num_classes"),
        ("cls_swin_t_relonly", "model.head.num_classes"),
    ],
)
def test_refuses_a_head_with_another_number_of_classes(name: str, key: str) -> None:
    config = load(name)
    config.merge_from_dict({key: 79})
    found = [str(problem) for problem in check_file(Path(f"{name}.py"), config)]
    assert any(line.startswith(f"{name}.py: {key} = 79: the class names") for line in found)


def test_refuses_leaves_that_differ_in_more_than_position(tmp_path: Path) -> None:
    write(tmp_path, "cls_swin_t_relonly", "cls_swin_t_relonly", "")
    body = "model = dict(backbone=dict(drop_path_rate=0.1))"
    path = write(tmp_path, "cls_swin_t_absonly", "cls_swin_t_absonly", body)
    (line,) = refusals(tmp_path).splitlines()
    assert line.startswith(
        f"{path}: model.backbone.drop_path_rate = 0.1: cls_swin_t_relonly.py has"
    )


def test_refuses_a_name_that_tells_another_encoding(tmp_path: Path) -> None:
    path = write(tmp_path, "cls_swin_t_noenc", "cls_swin_t_relonly", "")
    assert f"{path}: model.backbone.position" in refusals(path)
    assert "_relonly.py" in refusals(path)


def test_refuses_a_changed_network(tmp_path: Path) -> None:
    body = "model = dict(backbone=dict(depths=(2, 2, 4, 2)))"
    path = write(tmp_path, "cls_swin_t_relonly", "cls_swin_t_relonly", body)
    assert "params_without_position = 28265032: the model has" in refusals(path)


def test_refuses_an_optimiser_that_decays_position(tmp_path: Path) -> None:
    body = 'optim_wrapper = dict(constructor="DefaultOptimWrapperConstructor")'
    path = write(tmp_path, "cascade_swin_t_absonly", "cascade_swin_t_absonly", body)
    assert "absolute_pos_embed gets weight decay 0.05" in refusals(path)


def test_refuses_a_rule_that_matches_nothing(tmp_path: Path) -> None:
    rule = "optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(nrom=dict(decay_mult=0.0))))"
    path = write(tmp_path, "cascade_swin_t_relonly", "cascade_swin_t_relonly", rule)
    assert "the optimiser cannot be built" in refusals(path)
    assert "'nrom'" in refusals(path)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "val_dataloader = dict(dataset=dict(reduce_zero_label=False))",
            "val_dataloader.dataset.reduce_zero_label = False: the training split has True",
        ),
        (
            "tta_pipeline = [dict(type='TestTimeAug', transforms=["
            "[dict(type='LoadAnnotations', reduce_zero_label=False)]])]",
            "tta_pipeline.0.reduce_zero_label = False: the data set has True",
        ),
        (
            "test_dataloader = dict(dataset=dict(pipeline=[dict(type='LoadImageFromFile'), "
            "dict(type='LoadAnnotations'), dict(type='Resize', scale=(2048, 512), "
            "keep_ratio=True), dict(type='PackSegInputs')]))",
            "the label is loaded before the resize",
        ),
        (
            "test_dataloader = dict(dataset=dict(pipeline=[dict(type='LoadImageFromFile'), "
            "dict(type='Resize', scale=(2048, 512), keep_ratio=True), dict(type='LoadAnnotations'),"
            " dict(type='LoadAnnotations'), dict(type='PackSegInputs')]))",
            "label zero reduced, twice",
        ),
        (
            "test_dataloader = dict(dataset=dict(pipeline=[dict(type='LoadImageFromFile'), "
            "dict(type='Resize', scale=(2048, 640), keep_ratio=True), dict(type='LoadAnnotations'),"
            " dict(type='PackSegInputs')]))",
            "protocol.scales = [(2048, 512)]: the test pipeline does [(2048, 640)]",
        ),
        (
            "tta_pipeline = [dict(type='LoadImageFromFile'), dict(type='TestTimeAug', transforms=["
            "[dict(type='Resize', scale_factor=r, keep_ratio=True) for r in (0.5, 1.0)],"
            "[dict(type='RandomFlip', prob=p) for p in (0.0, 1.0)],"
            "[dict(type='LoadAnnotations')], [dict(type='PackSegInputs')]])]",
            "the test pipeline does ['x 0.5', 'x 1.0']",
        ),
    ],
    ids=["split", "tta", "order", "double", "protocol", "stock-tta"],
)
def test_refuses_segmentation_traps(tmp_path: Path, body: str, message: str) -> None:
    path = write(tmp_path, "upernet_swin_t_relonly", "upernet_swin_t_relonly", body)
    assert message in refusals(path)


def run_tool(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> object:
    """Run the command line in this process and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["check_configs.py", *map(str, arguments)])
    with pytest.raises(SystemExit) as done:
        runpy.run_path(str(ROOT / "tools" / "check_configs.py"), run_name="__main__")
    return done.value.code


def test_the_tool_exits_with_an_error_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "x_relonly", "cls_swin_t_relonly", "trian_cfg = dict()")
    assert run_tool(monkeypatch, path) == 1
    out, err = capsys.readouterr()
    assert f"{path}: trian_cfg = dict()" in err
    assert "1 problem(s)" in out


def test_the_tool_names_a_folder_without_configs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_tool(monkeypatch, tmp_path / "none") == 2
    assert f"{tmp_path / 'none'}: no config file here" in capsys.readouterr().err


def test_differences_names_both_values() -> None:
    one, other = load("cls_swin_t_relonly"), load("cls_swin_t_relonly")
    other.model.backbone.drop_path_rate = 0.1
    other.task = None
    assert differences(one, other) == {
        "model.backbone.drop_path_rate": (0.2, 0.1),
        "task": ("classification", None),
    }
