"""Every --cfg-options setting reaches the config or is refused with the name that was meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from mmengine.config import Config

from relpos_mm.engine import UserError
from relpos_mm.engine.cli import load_config, run_parser

CLS = "configs/mini/cls_swin_t_relonly.py"


@pytest.fixture(autouse=True)
def at_root(repo_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo_root)


def options(*pairs: str) -> Config:
    args = run_parser("").parse_args([CLS, "--cfg-options", *pairs])
    return load_config(args.config, args.cfg_options)


def test_b115_lists_items_and_new_inner_names_are_set() -> None:
    cfg = options(
        "train_dataloader.batch_size=3",
        "val_dataloader.dataset.pipeline.0.backend_args=None",
        "model.backbone.out_indices=[1,3]",
        "model.backbone.with_cp=True",
        "model.backbone.init_cfg.type=Pretrained",
    )
    assert cfg.train_dataloader.batch_size == 3
    assert cfg.model.backbone.out_indices == [1, 3]
    assert cfg.model.backbone.with_cp is True
    assert cfg.model.backbone.init_cfg == {"type": "Pretrained"}


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("optim_wraper.optimizer.lr=1", r"optim_wraper.*nothing reads.*'optim_wrapper'"),
        ("model.backbnoe.with_cp=True", r"no model\.backbnoe; did you mean 'backbone'"),
        ("val_dataloader.dataset.pipeline.99.type=A", r"pipeline\.99 does not exist"),
        ("val_dataloader.dataset.pipeline.first.type=A", r"pipeline\.first does not exist"),
        ("train_dataloader.batch_size.of=1", r"batch_size has no parts"),
    ],
)
def test_b115_what_reaches_nothing_is_refused(option: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        options(option)


@pytest.mark.parametrize(
    "value",
    [
        "[dict(type='ContextualRpe', rpe_on='k'), dict(type='Sinusoid2d', scale=-1.5)]",
        "[{'type': 'ContextualRpe', 'rpe_on': 'k'}, {'type': 'Sinusoid2d', 'scale': -1.5}]",
    ],
)
def test_a_list_of_encodings_is_written_as_in_a_config(value: str) -> None:
    cfg = options(f"model.backbone.position={value}", "optim_wrapper.clip_grad=dict(max_norm=1)")
    assert cfg.model.backbone.position == [
        {"type": "ContextualRpe", "rpe_on": "k"},
        {"type": "Sinusoid2d", "scale": -1.5},
    ]
    assert cfg.optim_wrapper.clip_grad == {"max_norm": 1}


def test_a_text_with_braces_stays_a_text() -> None:
    cfg = options("model.backbone.init_cfg.prefix={:05}.jpg")
    assert cfg.model.backbone.init_cfg.prefix == "{:05}.jpg"


@pytest.mark.parametrize(
    "option",
    [
        "a=[1,(2",
        "nothing",
        "a=[dict(type='A'",
        "a={'b': open('c')}",
        "a=dict(1)",
        "a=dict(**{})",
        "a=[dict, dict(b)]",
    ],
)
def test_what_cannot_be_read_is_an_error_of_the_command_line(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        options(option)
    assert end.value.code == 2
    assert f"--cfg-options: {option!r}" in capsys.readouterr().err


def test_no_loader_processes_need_no_second_option(capfd: pytest.CaptureFixture[str]) -> None:
    cfg = options("train_dataloader.num_workers=0", "train_dataloader.persistent_workers=True")
    assert cfg.train_dataloader.persistent_workers is False
    assert "num_workers is 0" in "".join(capfd.readouterr())
