"""Sample pictures of each task, and what keeps them from being drawn."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from relpos_mm.study.analysis import Group
from relpos_mm.study.records import Record
from relpos_mm.study.samples import sample_figure
from relpos_mm.study.tiles import Tile, tiles_svg

VARIANTS = ("noenc", "relonly")


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Group:
    """Two variants with a folder each, and three pictures."""
    monkeypatch.setattr("relpos_mm.study.samples.ROOT", tmp_path)
    for number in range(3):
        Image.new("RGB", (20, 10), (80 * number, 0, 0)).save(tmp_path / f"{number}.png")
    records = {}
    for variant in VARIANTS:
        (tmp_path / variant).mkdir()
        place = tmp_path / variant / "result.json"
        records[variant] = {1: Record("t", variant, 1, "", "", "val", {}, {}, place)}
    return Group("t", "", "val", "", records)


def folder(group: Group, variant: str) -> Path:
    return group.records[variant][1].path.parent


def keep(group: Group, variant: str, **arrays: object) -> None:
    pictures = np.array([f"{number}.png" for number in range(3)])
    content = {"pictures": pictures, "classes": np.array(["b", "d"]), **arrays}
    np.savez(folder(group, variant) / "evidence-val.npz", **content)


def test_label_maps_stand_under_the_pictures(group: Group) -> None:
    palette = np.array([[255, 0, 0], [0, 255, 0]], np.uint8)
    maps = {
        f"{kind}_{n}": np.full((10, 20), n % 2, np.uint8)
        for kind in ("truth", "guess")
        for n in range(3)
    }
    for variant in VARIANTS:
        keep(group, variant, areas=np.ones((3, 3, 2)), palette=palette, **maps)
    found = sample_figure(group)
    assert found is not None
    assert found[0] == "seed 1, the first pictures: label maps"
    titles = re.findall(r">([^<]+)</text>", found[1])
    assert titles == ["picture", "truth", *VARIANTS, "b", "d"]
    assert found[1].count("<use ") == 12
    assert found[1].count("<image ") == 5  # three pictures and two maps, each once
    assert 'fill="#ff0000"' in found[1]


def test_labels_are_shown_where_variants_disagree(group: Group) -> None:
    truth = np.array([0, 1, 1])
    keep(group, "noenc", truth=truth, guess=np.array([0, 1, 1]))
    keep(group, "relonly", truth=truth, guess=np.array([0, 0, 0]))
    found = sample_figure(group)
    assert found is not None
    assert found[0] == "seed 1, variants disagree on 2 of 3 pictures; the first of those"
    texts = re.findall(r">([^<]+)</text>", found[1])
    assert [text for text in texts if text.strip()] == ["truth: d", "noenc: d", "relonly: b"] * 2
    keep(group, "relonly", truth=truth, guess=truth)
    assert sample_figure(group) is None  # they agree on all


def test_boxes_stand_on_the_pictures(group: Group, tmp_path: Path) -> None:
    box = {"image_id": 7, "category_id": 3, "bbox": [2, 2, 10, 5]}
    images = [{"id": 7, "file_name": "1.png"}]
    truth = {"images": images, "annotations": [box], "categories": [{"id": 3, "name": "<b>"}]}
    (tmp_path / "ann.json").write_text(json.dumps(truth))
    for variant, score in zip(VARIANTS, (0.9, 0.1), strict=True):
        place = folder(group, variant)
        (place / "evidence-val.coco.json").write_text('{"ann_file": "ann.json", "images": ""}')
        (place / "evidence-val.bbox.json").write_text(json.dumps([{**box, "score": score}]))
    found = sample_figure(group)
    assert found is not None
    assert found[1].count("<rect ") == 2  # the truth and the surer of the two
    assert found[1].count("&lt;b&gt;</text>") == 2
    assert found[1].count("<image ") == 1


def test_nothing_is_drawn_without_pictures_or_of_different_ones(
    group: Group, tmp_path: Path
) -> None:
    assert sample_figure(group) is None
    truth = np.array([0, 1, 1])
    keep(group, "noenc", truth=truth, guess=truth)
    keep(group, "relonly", truth=truth, guess=truth[::-1], pictures=np.array(["a", "b", "c"]))
    assert sample_figure(group) is None
    keep(group, "relonly", truth=truth, guess=truth[::-1])
    assert sample_figure(group) is not None
    for picture in tmp_path.glob("*.png"):
        picture.unlink()
    assert sample_figure(group) is None


def test_tiles_fit_their_picture() -> None:
    svg = tiles_svg({"row": [Tile("data:,", (256, 128), [((128, 64, 64, 32), "b")], ["below"])]})
    assert 'viewBox="0 0 128 ' in svg
    assert 'x="64.0" y="48.0" width="32.0" height="16.0"' in svg  # halved, under a line of 16
    assert "scale(1.28 0.64)" in svg
