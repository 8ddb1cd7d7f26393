"""Bootstrap over pictures against what can be counted."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from relpos_mm.study.images import ap_spread, image_spread, miou_spread, top1_spread
from relpos_mm.study.records import Record

Arrays = dict[str, np.ndarray]


def counted(hits: list[int], size: int = 100) -> Arrays:
    """Return areas of two classes with ``size`` pixels of each; ``hits`` of class 0 by picture."""
    areas = np.array([[[hit, size], [size, size], [hit, 2 * size - hit]] for hit in hits])
    pictures = np.arange(len(hits)).astype(str)
    return {"areas": areas, "classes": np.array(["b", "d"]), "pictures": pictures}


def test_equal_runs_differ_in_no_picture() -> None:
    one = counted([10, 50, 90, 20])
    found = miou_spread(one, one)
    assert (found.error, found.low, found.high) == (0.0, 0.0, 0.0)
    assert found.per_class == {"b": 0.0, "d": 0.0}


def test_miou_difference_and_its_spread() -> None:
    generator = np.random.default_rng(0)
    base = generator.integers(20, 60, 40)
    gain = generator.integers(0, 20, 40)
    found = miou_spread(counted(list(base + gain)), counted(list(base)))
    # class b: hits / truth, since nothing else is called b; d: truth / (truth + what b lost)
    h1, h0, n = (base + gain).sum(), base.sum(), 40 * 100
    assert found.per_class["b"] == pytest.approx(100 * (h1 - h0) / n)
    assert found.per_class["d"] == pytest.approx(100 * (n / (2 * n - h1) - n / (2 * n - h0)))
    assert found.low < sum(found.per_class.values()) / 2 < found.high
    # the standard error of b's mean gain, about half of which d adds
    expected = gain.std() / np.sqrt(40)
    assert 0.5 * expected < found.error < 1.5 * expected


def labelled(guess: list[int], truth: list[int]) -> Arrays:
    pictures, names = np.arange(len(truth)).astype(str), np.array(["b", "d", "never"])
    return {"guess": np.array(guess), "truth": np.array(truth), "classes": names} | {
        "pictures": pictures
    }


def test_top1_difference_and_its_spread() -> None:
    truth = [0] * 60 + [1] * 40
    found = top1_spread(labelled([0] * 100, truth), labelled([1] * 100, truth))
    assert found.per_class == {"b": 100.0, "d": -100.0}
    # 60 % right against 40 %: the gain of a picture is 1 or -1
    assert found.error == pytest.approx(100 * np.sqrt(0.96 / 100), rel=0.1)
    assert found.low < 20 < found.high


def record(folder: Path, name: str = "result.json", **arrays: np.ndarray) -> Record:
    folder.mkdir(exist_ok=True)
    if arrays:
        np.savez(folder / "evidence-val.npz", **arrays)
    return Record("t", "v", 1, "", "", "val", {}, {}, folder / name)


def test_only_the_same_pictures_are_compared(tmp_path: Path) -> None:
    one = record(tmp_path / "a", **counted([10, 50]))
    other = record(tmp_path / "b", **counted([20, 50]))
    moved = record(tmp_path / "c", **{**counted([20, 50]), "pictures": np.array(["1", "0"])})
    found = image_spread(one, other, "miou_pct")
    assert found is not None
    assert found.per_class["b"] == pytest.approx(-5.0)
    assert image_spread(one, moved, "miou_pct") is None
    assert image_spread(one, other, "top1_pct") is None  # no labels in it


def test_evidence_beside_a_copied_result_is_not_its_own(tmp_path: Path) -> None:
    own = record(tmp_path / "a", **counted([10, 50]))
    copied = record(tmp_path / "a", "relonly-s1.json")
    assert own.evidence("npz") is not None
    assert copied.evidence("npz") is None
    assert image_spread(own, copied, "miou_pct") is None


@pytest.mark.skipif(importlib.util.find_spec("hotcoco") is None, reason="hotcoco is an extra")
def test_ap_of_a_better_detector(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    truth, good, bad = [], [], []
    for picture in range(1, 31):
        x, y = (int(v) for v in generator.integers(0, 60, 2))
        box = {"image_id": picture, "category_id": 1, "bbox": [x, y, 30, 30]}
        truth.append({**box, "id": picture, "area": 900, "iscrowd": 0})
        for found, shift in ((good, 2), (bad, 8)):
            moved = [x + int(generator.integers(0, shift)), y, 30, 30]
            found.append({**box, "bbox": moved, "score": float(generator.random())})
    images = [{"id": i, "width": 100, "height": 100, "file_name": f"{i}.png"} for i in range(1, 31)]
    categories = [{"id": 1, "name": "b"}]
    content = {"images": images, "annotations": truth, "categories": categories}
    for name, each in (("truth", content), ("good", good), ("bad", bad)):
        (tmp_path / f"{name}.json").write_text(json.dumps(each))
    files = [tmp_path / f"{name}.json" for name in ("truth", "good", "bad")]
    found = ap_spread(*files, "bbox")
    assert 0 < found.low < found.per_class["b"] < found.high
    back = ap_spread(files[0], files[2], files[1], "bbox")
    assert back.per_class["b"] == pytest.approx(-found.per_class["b"])


def test_without_evidence_there_is_no_number(tmp_path: Path) -> None:
    empty = record(tmp_path)
    for metric in ("miou_pct", "box_ap", "top1_pct", "things_miou_pct"):
        assert image_spread(empty, empty, metric) is None
    (tmp_path / "evidence-val.coco.json").write_text('{"ann_file": "nowhere.json"}')
    for kind in ("bbox", "segm"):
        (tmp_path / f"evidence-val.{kind}.json").write_text("[]")
    assert image_spread(empty, empty, "box_ap") is None
