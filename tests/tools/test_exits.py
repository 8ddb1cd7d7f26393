"""What a user gets wrong ends in one message and exit code 2, before anything is written."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from relpos_mm.engine.cli import run_tool
from relpos_mm.engine.eval_cli import evaluate
from relpos_mm.engine.infer_cli import infer
from relpos_mm.engine.train_cli import train
from relpos_mm.probes.cli import main as probe

from .conftest import Workspace

CLS = "configs/mini/cls_swin_t_relonly.py"


@pytest.fixture
def refuse(in_workspace: Workspace, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that runs a tool, checks that it refuses, and returns the message."""

    def run(tool: Callable[[list[str]], None], *arguments: str) -> str:
        assert run_tool(lambda: tool(list(arguments))) == 2
        message = capfd.readouterr().err
        assert message.startswith("error: ")
        assert "Traceback" not in message
        assert not Path("work_dirs").exists()
        return message

    return run


def test_missing_config(refuse: Callable[..., str]) -> None:
    assert "Config not found: configs/none.py" in refuse(train, "configs/none.py")
    assert "Config not found: configs/none.py" in refuse(evaluate, "configs/none.py", "x.pth")
    assert "Config not found: configs/none.py" in refuse(infer, "configs/none.py", "x.pth", "a")


def test_missing_checkpoint(refuse: Callable[..., str]) -> None:
    assert "none.pth: no such file" in refuse(evaluate, CLS, "none.pth")
    assert "none.pth: no such file" in refuse(train, CLS, "--resume", "none.pth")
    assert "none.pth: no such file" in refuse(infer, CLS, "none.pth", "a.png")
    assert "none.pth: no such file" in refuse(train, CLS, "--cfg-options", "load_from=none.pth")
    init = "model.backbone.init_cfg"
    nested = [f"{init}.type=Pretrained", f"{init}.checkpoint=none.pth"]
    assert "none.pth: no such file" in refuse(train, CLS, "--cfg-options", *nested)


def test_b105_two_sources_of_weights(refuse: Callable[..., str]) -> None:
    """Which of them a library drops is its own secret."""
    init = "[dict(type='Pretrained', checkpoint='a.pth')]"
    Path("two.py").write_text(
        f"_base_ = '{CLS}'\nmodel = dict(pretrained='b.pth', init_cfg={init})\n"
    )
    message = refuse(train, "two.py")
    assert "model has both pretrained='b.pth' and init_cfg" in message
    Path("one.py").write_text(f"_base_ = '{CLS}'\nmodel = dict(pretrained='b.pth')\n")
    assert "b.pth: no such file" in refuse(train, "one.py")


def test_b106_arguments_of_other_code_bases(refuse: Callable[..., str]) -> None:
    Path("old.py").write_text(
        f"_base_ = '{CLS}'\nmodel = dict(backbone=dict(embed_dim=48, ape=True, widow_size=7))\n"
    )
    message = refuse(train, "old.py")
    assert "error: model.backbone: RelPosSwin got unknown arguments" in message
    for hint in ("embed_dim -> embed_dims=", "ape -> position=", "did you mean window_size?"):
        assert hint in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model = dict(", "SyntaxError"),
        ("_base_ = 'none.py'", "none.py"),
        ("x = 1 / 0", "ZeroDivisionError"),
    ],
)
def test_broken_configs(refuse: Callable[..., str], text: str, said: str) -> None:
    Path("broken.py").write_text(text)
    message = refuse(train, "broken.py")
    assert message.startswith("error: broken.py: not a readable config")
    assert said in message


@pytest.mark.parametrize(
    ("text", "absent"),
    [
        ("", "model = dict(...), no"),
        ("model = 'Swin'", "no model = dict(...), no"),
        (f"_base_ = '{CLS}'\nval_cfg = None\ntrain_dataloader = test_dataloader = None", "loader"),
    ],
)
def test_configs_that_describe_no_run(refuse: Callable[..., str], text: str, absent: str) -> None:
    Path("part.py").write_text(text)
    for tool, more in ((train, []), (evaluate, ["x.pth"]), (infer, ["x.pth", "a.png"])):
        message = refuse(tool, "part.py", *more)
        assert message.startswith("error: part.py: no ")
        assert absent in message


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("train_dataloader.num_workers=-1", "train_dataloader or train_cfg cannot be built: num_"),
        ("default_hooks.checkpoint.save_best=fool", "a hook cannot be built: Cannot infer the"),
        ("visualizer.type=Painter", "the visualizer cannot be built: Painter is not in the"),
        ("optim_wrapper.optimizer.lr=-1", "optim_wrapper cannot be built: Invalid learning rate"),
        ("optim_wrapper.optimizer.momentum=0.9", "optim_wrapper cannot be built: AdamW.__init__()"),
        ("optim_wrapper.optimizer.type=AdmaW", "called 'AdmaW'; did you mean 'AdamW'?"),
        ("train_cfg.max_epochs=3", "train_cfg cannot be built: IterBasedTrainLoop.__init__() got"),
        ("model.type=Classifier", "the model cannot be built: Classifier is not in the"),
    ],
)
def test_values_that_nothing_can_be_built_of(
    in_workspace: Workspace, capfd: pytest.CaptureFixture[str], option: str, said: str
) -> None:
    assert run_tool(lambda: train([CLS, "--cfg-options", option])) == 2
    message = capfd.readouterr().err
    assert "error: " in message
    assert said in message


@pytest.mark.parametrize(
    "option",
    [
        "train_cfg.max_iters=0",
        "train_cfg.max_iters=many",
        "train_cfg.val_interval=0",
        "train_dataloader.batch_size=0",
        "optim_wrapper.accumulative_counts=0",
        "optim_wrapper.clip_grad.max_norm=-1",
        "default_hooks.checkpoint.interval=0",
        "randomness.seed=abc",
        "load_from=5",
    ],
)
def test_numbers_that_no_run_can_have(refuse: Callable[..., str], option: str) -> None:
    key, value = option.split("=")
    message = refuse(train, CLS, "--cfg-options", option)
    assert f"{key} must be " in message
    assert f"got {value!r}" in message or f"got {value}" in message


def test_a_work_directory_that_cannot_be_made(refuse: Callable[..., str]) -> None:
    Path("taken").write_text("")
    for folder in ("taken", "taken/run"):
        assert f"--work-dir: {folder}: " in refuse(train, CLS, "--work-dir", folder)
        assert "taken is no folder" in refuse(evaluate, CLS, "x.pth", "--work-dir", folder)


def test_missing_data(refuse: Callable[..., str], in_workspace: Workspace) -> None:
    (in_workspace.path / "data" / "bdpq").unlink()
    message = refuse(train, CLS)
    assert "data/bdpq" in message
    assert "tools/data.py make-mini" in message


def test_b046_resume_from_weights_alone(refuse: Callable[..., str]) -> None:
    torch.save({"state_dict": {"a": torch.ones(1)}}, "weights.pth")
    message = refuse(train, CLS, "--resume", "weights.pth")
    assert "No training state" in message
    assert "load_from=weights.pth" in message


def test_scaling_needs_a_recipe_batch(refuse: Callable[..., str]) -> None:
    Path("bare.py").write_text(f"_base_ = '{CLS}'\nauto_scale_lr = dict(_delete_=True)\n")
    assert "auto_scale_lr.base_batch_size" in refuse(train, "bare.py", "--auto-scale-lr")


def test_predictions_have_one_format(refuse: Callable[..., str]) -> None:
    assert "x.json must end in .pkl" in refuse(evaluate, CLS, "x.pth", "--out", "x.json")


def test_augmentation_must_be_in_the_config(refuse: Callable[..., str]) -> None:
    torch.save({"state_dict": {"a": torch.ones(1)}}, "weights.pth")
    message = refuse(evaluate, CLS, "weights.pth", "--tta")
    assert "has no tta_model and no tta_pipeline" in message


def test_b089_a_used_port_is_named_at_once(workspace: Workspace) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = workspace.run("dist_train.sh", CLS, "2", PORT=port)
    assert done.returncode == 2
    assert done.stdout.startswith(f"error: PORT={port} cannot be used")
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize("tool", ["dist_train.sh", "dist_test.sh"])
def test_scripts_explain_their_arguments(workspace: Workspace, tool: str) -> None:
    done = workspace.run(tool, CLS)
    assert done.returncode == 2
    assert "CONFIG" in done.stdout
    wrong = workspace.run("dist_train.sh", CLS, "--amp")
    assert wrong.returncode == 2
    assert "got '--amp'" in wrong.stdout


@pytest.mark.parametrize("spelling", ["--local_rank", "--local-rank"])
def test_b088_both_spellings_of_the_rank_are_taken(
    refuse: Callable[..., str], spelling: str
) -> None:
    for tool, rest in ((train, []), (evaluate, ["x.pth"])):
        assert "Config not found" in refuse(tool, "none.py", *rest, f"{spelling}=1")


def test_settings_of_a_compiler_that_has_none_such(refuse: Callable[..., str]) -> None:
    for value in ("maybe", "dict(mode='nonsense')"):
        for tool, *given in ((train,), (evaluate, "x.pth"), (infer, "x.pth", "a.png")):
            message = refuse(tool, CLS, *given, "--cfg-options", f"compile_backbone={value}")
            assert "compile_backbone" in message


def test_a_model_that_cannot_be_built(refuse: Callable[..., str]) -> None:
    """infer and probe say it as train does, and probe makes no folder for it."""
    torch.save({"state_dict": {}, "meta": {"dataset_meta": {"classes": ["a"]}}}, "x.pth")
    wrong = ["--cfg-options", "model.backbone.position.0.contnt=False"]
    told = "the model cannot be built"
    assert told in refuse(infer, CLS, "x.pth", "a.png", *wrong)
    assert told in refuse(probe, "size", CLS, "x.pth", "--out", "probes", *wrong)
    assert not Path("probes").exists()
