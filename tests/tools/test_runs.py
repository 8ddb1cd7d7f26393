"""The tools on a few pictures: train, evaluate, resume, several processes, loose pictures."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from relpos_mm.engine.cli import load_config
from relpos_mm.engine.predictor import Predictor

from .conftest import Workspace, mini_options

pytestmark = pytest.mark.train

CLS = "configs/mini/cls_swin_t_relonly.py"
DRAWN = {"cascade": "*/shown/*.png", "upernet": "../shown/**/*.png", "cls": "../shown/*.png"}


@pytest.mark.parametrize("family", ["cascade", "upernet", "cls"])
def test_b085_train_evaluate_and_predict(workspace: Workspace, family: str) -> None:
    config = f"configs/mini/{family}_swin_t_relonly.py"
    log = workspace.ok("train.py", config, "--work-dir", "a", *mini_options(2))
    assert "Start of the run" in log
    assert "relonly (RelativeBias): 8 modules" in log
    assert "got no gradient" not in log
    checkpoint = (workspace.path / "a" / "last_checkpoint").read_text()
    flags = ["--work-dir", "t", "--show-dir", "shown", "--out", "found.pkl"]
    if family == "cls":
        flags[3] = str(workspace.path / "shown")
    workspace.ok("test.py", config, checkpoint, *flags)

    trained, tested = workspace.result("a"), workspace.result("t")
    assert tested["metrics"] == trained["metrics"]
    assert any(value is not None for value in trained["metrics"].values())
    assert trained["variant"] == "relonly"
    assert trained["seed"] == tested["seed"] == 1
    assert trained["data_sha256"]
    assert len(list((workspace.path / "t").glob(DRAWN[family]))) == 7
    assert (workspace.path / "found.pkl").stat().st_size > 0

    _agrees_with_api(workspace, config, checkpoint)

    if family == "cls":  # the same seed, loader processes included; another seed
        workspace.ok("train.py", config, "--work-dir", "b", *mini_options(2))
        workspace.ok("train.py", config, "--work-dir", "c", *mini_options(2, seed=2))
        assert workspace.losses("a") == workspace.losses("b") != workspace.losses("c")
    _predict(workspace, config, checkpoint, family)


def _agrees_with_api(workspace: Workspace, config: str, checkpoint: str) -> None:
    """What the test wrote of its batches is what Python gets for each picture alone."""
    cfg = load_config(str(workspace.root / config))
    predictor = Predictor(cfg, str(workspace.path / checkpoint), "cpu")
    tested = pickle.loads((workspace.path / "found.pkl").read_bytes())
    assert len(tested) == 7
    for record in tested:
        _, sample = predictor(workspace.path / record["img_path"])
        ours = sample.to_dict()
        if "pred_instances" in record:  # in order of scores, which are close to equal here
            theirs, ours = record["pred_instances"], ours["pred_instances"]
            torch.testing.assert_close(theirs["scores"], ours["scores"], atol=1e-4, rtol=1e-4)
        elif "pred_sem_seg" in record:
            same = record["pred_sem_seg"]["data"] == ours["pred_sem_seg"]["data"]
            assert same.float().mean() > 0.999, "but for ties"
        else:
            torch.testing.assert_close(
                record["pred_score"], ours["pred_score"], atol=1e-4, rtol=1e-4
            )


def _predict(workspace: Workspace, config: str, checkpoint: str, family: str) -> None:
    """B079: all forms of pictures, bad ones among them, in one call."""
    folder = workspace.path / "odd"
    folder.mkdir()
    colour = np.zeros((45, 70, 3), np.uint8)
    colour[:, :35] = (200, 100, 50)
    grey, alpha = colour[..., 0], np.where(colour[..., 0] > 0, 255, 0).astype(np.uint8)
    pictures = {
        "rgb.png": Image.fromarray(colour),
        "grey.png": Image.fromarray(grey),
        "grey_alpha.png": Image.fromarray(np.dstack([grey, alpha])),
        "rgba.png": Image.fromarray(np.dstack([colour, alpha])),
        "cmyk.jpg": Image.fromarray(colour).convert("CMYK"),
        "sixteen_bits.png": Image.fromarray(grey.astype(np.uint16) * 256),
        "palette.png": Image.fromarray(colour).convert("P"),
        "one_bit.png": Image.fromarray(grey > 0),
        "tiny.png": Image.fromarray(colour[:1, :1]),
    }
    for name, picture in pictures.items():
        picture.save(folder / name)
    (folder / "broken.jpg").write_bytes((folder / "cmyk.jpg").read_bytes()[:100])

    done = workspace.run("infer.py", config, checkpoint, "odd", "none.png", "--out-dir", "out")
    assert done.returncode == 2
    assert "2 of 11 pictures not done: odd/broken.jpg, none.png" in done.stdout
    for name in pictures:
        stem = workspace.path / "out" / Path(name).stem
        record = json.loads(stem.with_suffix(".json").read_text())
        drawn = Image.open(stem.with_suffix(".png"))
        assert (record["width_px"], record["height_px"]) == pictures[name].size
        assert min(drawn.size) >= 1
        if family == "upernet":
            labels = Image.open(workspace.path / "out" / record["label_map"])
            assert labels.size == pictures[name].size
            assert sum(record["share_pct"].values()) == pytest.approx(100, abs=0.1)
        elif family == "cls":
            assert len(record["top"]) == 5
            assert record["top"][0]["class"] in "bdpqoxst"
    rgba, plain = (
        json.loads((workspace.path / "out" / f"{n}.json").read_text()) for n in ("rgba", "rgb")
    )
    drop = ("picture", "label_map")  # transparency is dropped: all else is equal
    assert {k: v for k, v in rgba.items() if k not in drop} == {
        k: v for k, v in plain.items() if k not in drop
    }


def test_b043_resume_continues_as_if_unbroken(workspace: Workspace) -> None:
    common = {"default_hooks__checkpoint__interval": 2}
    workspace.ok("train.py", CLS, "--work-dir", "whole", *mini_options(4, **common))
    workspace.ok("train.py", CLS, "--work-dir", "part", "--resume", *mini_options(2, **common))
    log = workspace.ok(
        "train.py", CLS, "--work-dir", "part", "--resume", *mini_options(4, **common)
    )
    assert "iter_2.pth" in log
    whole, part = workspace.losses("whole"), workspace.losses("part")
    assert [(step, lr) for step, _, lr in part] == [(step, lr) for step, _, lr in whole]
    assert [loss for _, loss, _ in part] == [loss for _, loss, _ in whole]
    assert workspace.result("part")["validated_at"]["iter"] == 4


def test_b084_two_processes_train_and_evaluate(workspace: Workspace) -> None:
    """B040: SyncBN on CPU, in two processes and in one."""
    config = "configs/mini/upernet_swin_t_relonly.py"
    options = mini_options(2, model__decode_head__norm_cfg__type="SyncBN")
    log = workspace.ok("dist_train.sh", config, "2", "--work-dir", "two", *options)
    assert "2 processes on CPU, connected by gloo" in log
    assert "SyncBN layers run as BN" in log
    assert "4 = 2 x 2 process(es); recipe 8" in log
    assert workspace.result("two")["cost"]["processes"] == 2
    checkpoint = workspace.path / "two" / "iter_2.pth"
    workspace.ok("dist_test.sh", config, checkpoint, "2", "--work-dir", "test_two")
    workspace.ok("test.py", config, checkpoint, "--work-dir", "test_one")
    one, two = workspace.result("test_one"), workspace.result("test_two")
    # Seven pictures on two processes: none is counted twice.
    assert one["metrics"] == two["metrics"] == workspace.result("two")["metrics"]


def test_b015_bfloat16_trains_a_detector(workspace: Workspace) -> None:
    config = "configs/mini/cascade_swin_t_relonly.py"
    log = workspace.ok("train.py", config, "--amp", "--work-dir", "amp", *mini_options(2))
    assert "AdamW, bfloat16" in log
    assert len(workspace.losses("amp")) == 2


def test_b061_nan_ends_the_run_with_the_pictures_named(workspace: Workspace) -> None:
    options = mini_options(
        4, optim_wrapper__optimizer__lr="1e30", default_hooks__checkpoint__interval=1
    )
    done = workspace.run("train.py", CLS, "--work-dir", "nan", *options)
    assert done.returncode == 2
    message = done.stdout[done.stdout.index("\nerror: ") :]
    assert "not finite" in message
    assert "Traceback" not in done.stdout
    saved = list((workspace.path / "nan").glob("iter_*.pth"))
    assert len(saved) <= 1
    assert not (workspace.path / "nan" / "result.json").exists()
    assert not list(Path(workspace.path / "nan").glob(".*.part"))
