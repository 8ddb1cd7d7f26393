"""The generator's promises about files: same bytes everywhere, all or nothing."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from relpos_mm.data.bdpq import GENERATOR_VERSION, Knobs, OtherDataInTheWay, make_mini, write
from relpos_mm.data.bdpq.knobs import LETTERS, SEG_CLASSES
from relpos_mm.data.bdpq.png import encode_png
from relpos_mm.data.bdpq.scene import compose_scene, scene_splits

from .conftest import TINY

# Of the manifest of TINY with seed 0. A change of it without a new GENERATOR_VERSION would give two
# data sets one name; with one, results before and after cannot be compared.
EXPECTED_VERSION = 1
EXPECTED_MANIFEST = "23edb6e368b441de0ae7634b0a38efcaa7136a32e4cbdefef041f578699ee47a"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_manifest_is_the_committed_one(tiny_set: Path) -> None:
    assert GENERATOR_VERSION == EXPECTED_VERSION
    assert sha256(tiny_set / "manifest.json") == EXPECTED_MANIFEST


def test_bytes_do_not_depend_on_workers(tiny_set: Path, tmp_path: Path) -> None:
    again = make_mini(tmp_path / "again", knobs=TINY, workers=2).parent
    files = sorted(p.relative_to(tiny_set) for p in tiny_set.rglob("*") if p.is_file())
    assert files == sorted(p.relative_to(again) for p in again.rglob("*") if p.is_file())
    assert all((tiny_set / f).read_bytes() == (again / f).read_bytes() for f in files)


def test_another_seed_gives_another_set(tiny_set: Path, tmp_path: Path) -> None:
    other = json.loads(make_mini(tmp_path / "other", knobs=TINY, seed=1, workers=1).read_text())
    mine = json.loads((tiny_set / "manifest.json").read_text())
    assert all(other["sha256"][group] != digest for group, digest in mine["sha256"].items())


def test_manifest_describes_what_is_there(tiny_set: Path) -> None:
    manifest = json.loads((tiny_set / "manifest.json").read_text())
    assert manifest["knobs"] == TINY.as_json()
    assert (manifest["generator"], manifest["seed"]) == ("bdpq", 0)
    for group, count in manifest["counts"].items():
        assert len(list((tiny_set / group).rglob("*.png"))) == count
    for group, digest in manifest["sha256"].items():
        if group.endswith(".json"):
            assert sha256(tiny_set / group) == digest


def test_layout(tiny_set: Path) -> None:
    splits = {"train", "val", "val_shift", "val_large", "val_zoom"}
    assert {p.name for p in tiny_set.iterdir()} == {"manifest.json", "cls", "img", "ann", "seg"}
    assert {p.stem for p in (tiny_set / "ann").iterdir()} == splits
    for kind in ("img", "seg"):
        assert {p.name for p in (tiny_set / kind).iterdir()} == splits
    for split, count in (("train", 16), ("val", 8)):
        folders = tiny_set / "cls" / split
        assert {p.name for p in folders.iterdir()} == set(LETTERS)
        assert {len(list(p.iterdir())) for p in folders.iterdir()} == {count // len(LETTERS)}
    sizes = {s: cv2.imread(str(tiny_set / f"img/{s}/000001.png")).shape for s in splits}
    assert sizes.pop("val_large") == (192, 192, 3)
    assert set(sizes.values()) == {(128, 128, 3)}
    label = cv2.imread(str(tiny_set / "seg/train/000001.png"), cv2.IMREAD_UNCHANGED)
    assert label.shape == (128, 128)
    assert label.max() < len(SEG_CLASSES)


@pytest.mark.parametrize("shape", [(1, 1), (7, 5, 3), (300, 200, 3)])
def test_png_is_read_back(shape: tuple[int, ...]) -> None:
    picture = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    read = cv2.imdecode(np.frombuffer(encode_png(picture), np.uint8), cv2.IMREAD_UNCHANGED)
    assert np.array_equal(read if picture.ndim == 2 else read[:, :, ::-1], picture)


def test_png_refuses_other_arrays() -> None:
    with pytest.raises(ValueError, match=r"uint8 picture.*float64"):
        encode_png(np.zeros((2, 2)))


def test_files_hold_the_composed_scene(tiny_set: Path) -> None:
    scene = compose_scene(TINY, scene_splits(TINY)["val_shift"], 0, 2)
    assert (tiny_set / "img/val_shift/000003.png").read_bytes() == encode_png(scene.picture)
    assert (tiny_set / "seg/val_shift/000003.png").read_bytes() == encode_png(scene.labels)


def test_second_call_does_nothing(tiny_set: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in tiny_set.rglob("*")}
    assert make_mini(tiny_set, knobs=TINY) == tiny_set / "manifest.json"
    assert {p: p.stat().st_mtime_ns for p in tiny_set.rglob("*")} == before


def test_lost_pictures_are_made_again(tiny_set: Path, tmp_path: Path) -> None:
    copy = tmp_path / "bdpq"
    shutil.copytree(tiny_set, copy)
    lost = copy / "img/val/000002.png"
    lost.unlink()
    make_mini(copy, knobs=TINY, workers=1)
    assert lost.read_bytes() == (tiny_set / "img/val/000002.png").read_bytes()


def test_force_makes_a_spoilt_picture_again(tiny_set: Path, tmp_path: Path) -> None:
    copy = tmp_path / "bdpq"
    shutil.copytree(tiny_set, copy)
    (copy / "img/val/000001.png").write_bytes(b"")
    make_mini(copy, knobs=TINY, workers=1, force=True)
    assert (copy / "img/val/000001.png").read_bytes()


def test_another_recipe_is_replaced_only_by_force(tiny_set: Path, tmp_path: Path) -> None:
    copy = tmp_path / "bdpq"
    shutil.copytree(tiny_set, copy)
    other = replace(TINY, noise=3)
    with pytest.raises(OtherDataInTheWay, match=r"another knobs .*--force"):
        make_mini(copy, knobs=other, workers=1)
    assert sha256(copy / "manifest.json") == sha256(tiny_set / "manifest.json")
    make_mini(copy, knobs=other, workers=1, force=True)
    assert json.loads((copy / "manifest.json").read_text())["knobs"]["noise"] == 3


@pytest.mark.parametrize("force", [False, True])
def test_foreign_files_are_never_touched(tmp_path: Path, force: bool) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(OtherDataInTheWay, match="no embedded data set"):
        make_mini(tmp_path, knobs=TINY, force=force)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_an_interrupted_run_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(write, "compose_scene", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make_mini(tmp_path / "bdpq", knobs=TINY, workers=1)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = tmp_path / f".bdpq.making-{ended.pid}"
    alive = tmp_path / f".bdpq.making-{os.getppid()}"
    left.mkdir()
    alive.mkdir()
    make_mini(
        tmp_path / "bdpq",
        knobs=Knobs.parse(["cls_train=8", "cls_val=8", "train_scenes=1", "val_scenes=1"]),
        workers=1,
    )
    assert not left.exists()
    assert alive.exists()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("lettre_px=1,2", "unknown knob 'lettre_px'"),
        ("noise=loud", "whole numbers"),
        ("noise=1,2", "one number"),
        ("letters=5,2", "LOW,HIGH"),
        ("letters=5", "LOW,HIGH"),
        ("noise=-1", "not below zero"),
        ("noise=256", "from 0 to 255"),
        ("layout_pct=500", "layout_pct must be from 0 to 100"),
        ("home_pct=500", "home_pct must be from 1 to 100"),
        ("home_pct=0", "home_pct must be from 1 to 100"),
        ("home_pct=5", "have only 6 of 128 pixels"),
        ("shifted_pct=300", "shifted_pct must be from 1 to 100"),
        ("zoom_pct=0", "zoom_pct must be at least 1"),
        ("zoom_pct=900", "zoom_pct=900: letters of 198 pixels and more have only 76"),
        ("train_scenes=0", "train_scenes must be at least 1"),
        ("letter_px=0,9", "letter_px=0,9: letter_px must be at least 1"),
    ],
)
def test_bad_knobs_are_refused(setting: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Knobs.parse([setting])
