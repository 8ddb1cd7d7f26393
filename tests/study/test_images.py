"""Bootstrap over pictures against what can be counted."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from relpos_mm.study.images import ap_spread, image_spread, miou_spread


def write_counts(path: Path, hits: list[int], size: int = 100) -> Path:
    """Write counts of two classes with ``size`` pixels of each; ``hits`` of class 0 by picture."""
    counts = np.array([[[hit, size - hit], [0, size]] for hit in hits])
    np.savez_compressed(path, counts=counts, classes=np.array(["b", "d"]))
    return path


def test_equal_runs_differ_in_no_picture(tmp_path: Path) -> None:
    one = write_counts(tmp_path / "one.npz", [10, 50, 90, 20])
    found = miou_spread(one, one)
    assert (found.error, found.low, found.high) == (0.0, 0.0, 0.0)
    assert found.per_class == {"b": 0.0, "d": 0.0}


def test_miou_difference_and_its_spread(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    base = generator.integers(20, 60, 40)
    gain = generator.integers(0, 20, 40)
    one = write_counts(tmp_path / "one.npz", list(base + gain))
    other = write_counts(tmp_path / "other.npz", list(base))
    found = miou_spread(one, other)
    # class b: hits / truth, since nothing else is called b; d: truth / (truth + what b lost)
    h1, h0, n = (base + gain).sum(), base.sum(), 40 * 100
    assert found.per_class["b"] == pytest.approx(100 * (h1 - h0) / n)
    assert found.per_class["d"] == pytest.approx(100 * (n / (2 * n - h1) - n / (2 * n - h0)))
    assert found.low < sum(found.per_class.values()) / 2 < found.high
    # the standard error of b's mean gain, about half of which d adds
    expected = gain.std() / np.sqrt(40)
    assert 0.5 * expected < found.error < 1.5 * expected


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
    assert image_spread(tmp_path, tmp_path, "miou_pct", {}) is None
    assert image_spread(tmp_path, tmp_path, "box_ap", {}) is None
    assert image_spread(tmp_path, tmp_path, "top1_pct", {}) is None
