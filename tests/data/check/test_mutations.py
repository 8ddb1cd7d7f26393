"""Whatever is done to a json or a label file: never a traceback, never a silent wrong number."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO

from relpos_mm.data.check.coco import CocoSplit, check_coco
from relpos_mm.data.check.coco_json import check_coco_json
from relpos_mm.data.check.coco_shapes import decode_counts, mask_fault
from relpos_mm.data.check.finding import errors_of
from relpos_mm.data.check.label_map import check_label_map
from relpos_mm.data.check.outcome import Options

from .conftest import CONTENT

STEADY = settings(
    derandomize=True,
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 2**40)
    | st.floats()
    | st.sampled_from(["", "cat", "dog", "a.jpg", "b.jpg", "x" * 40]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


def places(node: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in nested lists and dicts."""
    keys = node.keys() if isinstance(node, dict) else range(len(node))
    own = [(node, key) for key in keys]
    deeper = [
        place for key in keys if isinstance(node[key], (dict, list)) for place in places(node[key])
    ]
    return own + deeper


@st.composite
def spoiled(draw: st.DrawFn) -> dict[str, Any]:
    """The small valid file with one to three places replaced, dropped or doubled."""
    content = copy.deepcopy(CONTENT)
    for _ in range(draw(st.integers(1, 3))):
        container, key = draw(st.sampled_from(places(content)))
        how = draw(st.sampled_from(["replace", "drop", "double"]))
        if isinstance(container, dict) and key not in container:
            continue
        if isinstance(container, list) and key >= len(container):
            continue
        if how == "replace":
            container[key] = draw(JUNK)
        elif how == "drop":
            del container[key]
        elif isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
    return content


@STEADY
@given(content=spoiled())
def test_spoiled_json_is_passed_only_if_pycocotools_can_use_all_of_it(
    content: dict[str, Any], tmp_path: Path
) -> None:
    findings = check_coco_json(Path("x.json"), content, classes=("cat", "dog"))
    assert all(f.file and f.value and f.remedy for f in findings)
    if errors_of(findings):
        return
    coco = COCO()
    coco.dataset = content
    coco.createIndex()
    assert len(coco.anns) == len(content["annotations"])
    for one in content["annotations"]:
        image = coco.imgs[one["image_id"]]
        mask = coco.annToMask(one)
        assert mask.shape == (image["height"], image["width"])
        assert one["area"] > 0
        assert one["id"] != 0
        assert len(one["bbox"]) == 4


@STEADY
@given(content=spoiled())
def test_a_whole_check_of_a_spoiled_set_names_files(
    content: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(content))
    (tmp_path / "pictures").mkdir(exist_ok=True)
    for name in ("a.jpg", "b.jpg"):
        if not (tmp_path / "pictures" / name).exists():
            Image.new("RGB", (40, 20)).save(tmp_path / "pictures" / name)
    outcome = check_coco([CocoSplit(path, tmp_path / "pictures")], Options(workers=1))
    assert all(str(tmp_path) in f.file for f in outcome.findings)


@STEADY
@given(text=st.text(st.characters(min_codepoint=40, max_codepoint=130), max_size=12))
def test_compressed_masks_that_pass_decode_to_their_size(text: str) -> None:
    if mask_fault({"size": [20, 40], "counts": text}, 40, 20) is None:
        mask = coco_mask.decode({"size": [20, 40], "counts": text.encode()})
        assert mask.shape == (20, 40)
        assert sum(decode_counts(text) or ()) == 800


@STEADY
@given(
    mode=st.sampled_from(["L", "RGB", "I;16"]),
    values=st.lists(st.integers(0, 300), min_size=1, max_size=6),
    classes=st.integers(1, 200),
    reduce_zero=st.booleans(),
)
def test_label_files_that_pass_hold_classes_alone(
    tmp_path: Path, mode: str, values: list[int], classes: int, reduce_zero: bool
) -> None:
    path = tmp_path / "label.png"
    array = np.array([values], np.uint16 if mode == "I;16" else np.int64)
    array = array if mode == "I;16" else array.clip(0, 255).astype(np.uint8)
    picture = Image.fromarray(np.dstack([array] * 3) if mode == "RGB" else array)
    picture.save(path)
    seen, findings = check_label_map(path, classes, reduce_zero, picture.size)
    assert all(f.file == str(path) and f.remedy for f in findings)
    if errors_of(findings):
        return
    assert mode == "L", "colours and 16 bits are no class numbers"
    assert seen == set(array.ravel().tolist())
    learnt = {v - reduce_zero for v in seen if v != 255 and not (reduce_zero and v == 0)}
    assert all(0 <= v < classes for v in learnt)


@STEADY
@given(cut=st.floats(0, 1), flip=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_damaged_label_files_are_named_or_read_whole(
    tmp_path: Path, cut: float, flip: int, bit: int
) -> None:
    buffer = io.BytesIO()
    Image.fromarray(np.arange(200, dtype=np.uint8).reshape(10, 20) % 7).save(buffer, "PNG")
    data = bytearray(buffer.getvalue())
    data[flip % len(data)] ^= 1 << bit
    path = tmp_path / "label.png"
    path.write_bytes(data[: int(len(data) * cut) + 1])
    seen, findings = check_label_map(path, 7, False, (20, 10))
    assert findings or seen <= set(range(7)) | {255}
    assert all(f.file == str(path) for f in findings)
