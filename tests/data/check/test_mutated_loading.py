"""What a check lets pass, a loader can read whole; what it cannot read, it names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from relpos_mm.data.check.coco_json import check_coco_json
from relpos_mm.data.check.coco_start import SKIPPED_IN_TRAINING
from relpos_mm.data.check.finding import errors_of
from relpos_mm.data.check.label_map import check_label_map
from relpos_mm.data.check.sample import BadSample

from .test_mutations import STEADY, spoiled
from .test_sample import detection, segmentation

FEWER = settings(STEADY, max_examples=20)  # each one builds a data set


def write_set(folder: Path, content: Any) -> Path:
    """The json beside its two pictures."""
    pictures = folder / "pictures"
    pictures.mkdir(exist_ok=True)
    for name in ("a.jpg", "b.jpg"):
        if not (pictures / name).exists():
            Image.fromarray(np.full((20, 40, 3), 90, np.uint8)).save(pictures / name)
    path = folder / "train.json"
    path.write_text(json.dumps(content))
    return path


@FEWER
@given(content=spoiled())
def test_json_that_a_start_lets_pass_is_read_whole_or_its_picture_named(
    content: dict[str, Any], tmp_path: Path
) -> None:
    found = check_coco_json(tmp_path / "train.json", content, classes=("cat", "dog"))
    if errors_of(f for f in found if f.rule not in SKIPPED_IN_TRAINING):
        return
    dataset = detection(write_set(tmp_path, content)).dataset
    assert len(dataset) == len(content["images"])
    skipped = any(f.rule in SKIPPED_IN_TRAINING for f in found)
    read = 0
    for index in range(len(dataset)):
        try:
            sample = dataset[index]["data_samples"]
        except BadSample as refusal:  # the json names another file or size than there is
            assert str(tmp_path / "pictures") in str(refusal)  # noqa: PT017  either way is right
            return
        for instances in (sample.gt_instances, sample.ignored_instances):
            assert len(instances.masks) == len(instances.bboxes) == len(instances.labels)
            assert instances.bboxes.tensor.isfinite().all()
            assert set(instances.labels.tolist()) <= {0, 1}
            read += len(instances)
    assert read == len(content["annotations"]) or skipped


@pytest.fixture
def labelled(tmp_path: Path) -> Any:
    """A data set of one picture, whose label file each example writes."""
    return segmentation(tmp_path, test=True)


@STEADY
@given(cut=st.floats(0, 1), flip=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_label_file_that_is_damaged_is_named_or_its_values_are_those_of_the_file(
    labelled: Any, tmp_path: Path, cut: float, flip: int, bit: int
) -> None:
    path = tmp_path / "seg/a.png"
    Image.fromarray(np.arange(24, dtype=np.uint8).reshape(4, 6) % 4).save(path)
    data = bytearray(path.read_bytes())
    data[flip % len(data)] ^= 1 << bit
    path.write_bytes(data[: int(len(data) * cut) + 1])
    values, findings = check_label_map(path, 3, True, (6, 4))
    try:
        labels = labelled[0]["data_samples"].gt_sem_seg.data
    except BadSample as refusal:
        assert str(path) in str(refusal)  # noqa: PT017  either way is right
        return
    assert not errors_of(findings)
    assert set(labels.unique().tolist()) == {v - 1 if 0 < v < 255 else 255 for v in values}
