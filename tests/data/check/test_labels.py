"""Label files of segmentation: form, values, pairs, releases."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from relpos_mm.data.check.ade import LabelledSplit, check_ade, check_label_maps
from relpos_mm.data.check.label_map import check_label_map
from relpos_mm.data.check.outcome import Options
from relpos_mm.data.trees import write_ade_tree

from .conftest import only, rules

ONE = Options(mini=True, workers=1)


@pytest.fixture(scope="module")
def sound_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_ade_tree(tmp_path_factory.mktemp("ade") / "ADEChallengeData2016", num_images=2)


@pytest.fixture
def tree(sound_tree: Path, tmp_path: Path) -> Path:
    """A tree of two pictures per split that a test may spoil."""
    return Path(shutil.copytree(sound_tree, tmp_path / "ADEChallengeData2016"))


def label(path: Path, values: list[int], dtype: Any = np.uint8) -> Path:
    Image.fromarray(np.array([values] * 2, dtype)).save(path)
    return path


def test_sound_tree_passes_and_is_summed_up(tree: Path) -> None:
    outcome = check_ade(tree, ONE)
    assert outcome.findings == []
    assert outcome.counts["pairs in training"] == 2
    counts = [f.value for f in check_ade(tree, Options(workers=1)).findings]
    assert counts == [
        "2 pairs, the published set has 20,210",
        "2 pairs, the published set has 2,000",
    ]


def test_b066_values_0_to_150_and_255_fit_a_reduced_set(tmp_path: Path) -> None:
    path = label(tmp_path / "x.png", [0, 1, 2, 150, 255])
    assert check_label_map(path, 150, True) == ({0, 1, 2, 150, 255}, [])
    assert (
        "values 150 are out of range"
        in only(check_label_map(path, 150, False)[1], "label-range").value
    )


def test_b066_labels_whose_zero_is_gone_already_are_noted(tree: Path) -> None:
    for path in (tree / "annotations").rglob("*.png"):
        reduced = np.asarray(Image.open(path)).astype(int) - 1
        reduced[reduced < 0] = 255
        Image.fromarray(reduced.astype(np.uint8)).save(path)
    assert "label-reduced" in rules(check_ade(tree, ONE).findings, "note")


def test_b067_binary_masks_of_0_and_255(tmp_path: Path) -> None:
    for kind in ("img", "seg"):
        (tmp_path / kind).mkdir()
    for name in ("a", "b"):
        Image.new("RGB", (4, 2)).save(tmp_path / "img" / f"{name}.jpg")
        label(tmp_path / "seg" / f"{name}.png", [0, 255, 255, 0])
    split = LabelledSplit(tmp_path / "img", tmp_path / "seg", 2, False)
    only(check_label_maps([split], ONE).findings, "label-binary")
    only(check_label_map(tmp_path / "seg/a.png", 150, True)[1], "label-binary")


@pytest.mark.parametrize(("value", "reduced"), [(150, False), (151, True), (254, True)])
def test_b067_label_beyond_the_classes(tmp_path: Path, value: int, reduced: bool) -> None:
    path = label(tmp_path / "x.png", [1, value])
    found = only(check_label_map(path, 150, reduced)[1], "label-range")
    assert f"values {value} are out of range" in found.value


def test_b068_one_bad_file_among_many_is_named(tree: Path) -> None:
    path = tree / "annotations/validation/ADE_val_00000002.png"
    values = np.asarray(Image.open(path)).copy()
    values[3, 4] = 200
    Image.fromarray(values).save(path)
    found = only(check_ade(tree, ONE).findings, "label-range")
    assert found.file == str(path)
    assert "values 200 are out of range; allowed are 1 to 150" in found.value


def test_colour_16_bit_palette_and_damaged_label_files(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    Image.new("RGB", (4, 2)).save(path)
    only(check_label_map(path, 5, False)[1], "label-colour")
    label(path, [1, 2, 300], np.uint16)
    assert "lower 8" in only(check_label_map(path, 5, False)[1], "label-16-bit").value
    palette = Image.fromarray(np.array([[1, 2, 3]] * 2, np.uint8), "P")
    palette.putpalette([0, 0, 0, 9, 9, 9, 8, 8, 8, 7, 7, 7])
    palette.save(path)
    assert check_label_map(path, 5, False) == ({1, 2, 3}, [])
    path.write_bytes(path.read_bytes()[:40])
    only(check_label_map(path, 5, False)[1], "label-unreadable")


def test_b071_label_of_another_size_than_its_picture(tree: Path) -> None:
    path = tree / "annotations/training/ADE_train_00000001.png"
    file = Image.open(path)
    file.transpose(Image.Transpose.ROTATE_90).save(path)
    found = only(check_ade(tree, ONE).findings, "label-size")
    assert "480 x 640 px, its picture 640 x 480" in found.value


def test_b070_wrong_suffix_case_and_unmatched_names(tree: Path) -> None:
    pictures, labels = tree / "images/training", tree / "annotations/training"
    (labels / "ADE_train_00000001.png").rename(labels / "ADE_train_00000009.png")
    findings = check_ade(tree, ONE).findings
    assert rules(findings) == ["pair", "pair"]
    assert "1 files without a label, first: ADE_train_00000001" in findings[0].value
    assert "2 pictures (.jpg), 2 label files (.png)" in findings[0].value
    for path in list(pictures.iterdir()):
        path.rename(path.with_suffix(".JPG"))
    found = only(check_ade(tree, ONE).findings, "suffix")
    assert (found.file, "0 files end in .jpg; found 2 .JPG" in found.value) == (
        str(pictures),
        True,
    )
    shutil.rmtree(pictures)
    pictures.mkdir()
    assert "an empty or missing folder" in only(check_ade(tree, ONE).findings, "suffix").value


def test_b074_one_level_too_deep_or_too_high(tree: Path) -> None:
    found = only(check_ade(tree.parent, ONE).findings, "ade-level")
    assert f"Give {tree}" in found.remedy
    assert f"Give {tree}" in only(check_ade(tree / "images", ONE).findings, "ade-level").remedy


@pytest.mark.parametrize("path", ["images/training/a/abbey/x.jpg", "images/ADE/training/k/x.jpg"])
def test_b074_full_release_is_recognised(tmp_path: Path, path: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / "index_ade20k.mat").touch()
    (tmp_path / path).touch()
    for marker in (tmp_path / "index_ade20k.mat", None):
        found = only(check_ade(tmp_path, ONE).findings, "ade-release")
        assert "ADEChallengeData2016.zip" in found.remedy
        if marker is not None:
            marker.unlink()
