"""Annotation files in COCO's format: what spoils a run is named with ids and a remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO

from relpos_mm.data.check.coco import CocoSplit, check_coco
from relpos_mm.data.check.coco_json import check_coco_json, read_json
from relpos_mm.data.check.coco_shapes import decode_counts, mask_fault
from relpos_mm.data.check.outcome import Options

from .conftest import only, rules

HERE = Path("val.json")
Write = Callable[[Any], Path]


def test_valid_content_has_no_finding(content: dict[str, Any]) -> None:
    assert check_coco_json(HERE, content, classes=("cat", "dog")) == []


@pytest.mark.parametrize("field", ["area", "iscrowd", "segmentation", "bbox", "image_id"])
def test_b048_missing_field_is_named_with_its_annotation(
    content: dict[str, Any], field: str
) -> None:
    del content["annotations"][1][field]
    found = only(check_coco_json(HERE, content), f"coco-{field}")
    assert found.file == "val.json"
    assert f"'{field}' is missing or wrong in annotations 12" in found.value


def test_b048_boxes_alone_need_no_segmentation(content: dict[str, Any]) -> None:
    for one in content["annotations"]:
        del one["segmentation"]
    assert check_coco_json(HERE, content, masks=False) == []


def test_b049_id_zero_and_ids_twice_are_listed(content: dict[str, Any]) -> None:
    first, second = content["annotations"]
    first["id"] = 0
    assert "annotation id 0" in only(check_coco_json(HERE, content), "coco-id-zero").value
    first["id"] = second["id"] = 4
    assert "twice: 4;" in only(check_coco_json(HERE, content), "coco-id-twice").value


def test_b050_first_ten_ids_and_both_image_names(content: dict[str, Any]) -> None:
    content["images"][1]["id"] = 1
    found = only(check_coco_json(HERE, content), "coco-image-id-twice")
    assert "1 (a.jpg, b.jpg)" in found.value
    content["images"][1] = {**content["images"][0], "id": 2}
    findings = check_coco_json(HERE, content)
    assert (rules(findings), rules(findings, "note")) == ([], ["coco-file-twice"])

    one = content["annotations"][0]
    content["annotations"] = [one | {"id": i % 15 + 1} for i in range(30)]
    found = only(check_coco_json(HERE, content), "coco-id-twice")
    assert "1, 2, 3, 4, 5, 6, 7, 8, 9, 10 ... (15 in all)" in found.value


@pytest.mark.parametrize("classes", [("Cat", "dog"), ("cat", "dog", "cow"), ("person",)])
def test_b051_absent_class_shows_both_lists(
    content: dict[str, Any], classes: tuple[str, ...]
) -> None:
    value = only(check_coco_json(HERE, content, classes=classes), "coco-classes").value
    for name in (*classes, "cat", "dog"):
        assert repr(name) in value


def test_b051_another_order_is_refused_and_left_out_classes_are_told(
    content: dict[str, Any],
) -> None:
    found = only(check_coco_json(HERE, content, classes=("dog", "cat")), "coco-class-order")
    assert "('cat', 'dog')" in found.remedy
    findings = check_coco_json(HERE, content, classes=("dog",))
    assert (rules(findings), rules(findings, "note")) == ([], ["coco-classes-unused"])


@pytest.mark.parametrize(
    ("segmentation", "words"),
    [
        ([], "segmentation is empty"),
        ([[]], "0 numbers"),
        ([[5, 5]], "2 numbers"),
        ([[2, 2, 12, 12]], "4 numbers"),
        ([[2, 2, 12, 2, 12, 12, 3]], "odd count"),
        ([[2, 2, 12, 2, 12, "12"]], "finite numbers"),
        ([[2, 2, 12, 2, 12, float("nan")]], "finite numbers"),
        ("mask", "a str, neither"),
        ({"size": [40, 20], "counts": [800]}, "the picture is [20, 40]"),
        ({"size": [20, 40], "counts": [799]}, "add up to 799 px"),
        ({"size": [20, 40], "counts": [-1, 801]}, "neither text nor a list"),
        ({"size": [20, 40], "counts": "h~0"}, "damaged"),
        ({"size": [20, 40]}, "neither text nor a list"),
    ],
)
def test_b055_mask_that_the_mask_code_cannot_take(
    content: dict[str, Any], segmentation: Any, words: str
) -> None:
    content["annotations"][1]["segmentation"] = segmentation
    findings = check_coco_json(HERE, content)
    assert len(findings) == 1
    assert words in findings[0].value
    assert "annotations 12" in findings[0].value
    content["annotations"][1]["segmentation"] = [[2, 2, 12, 2, 12, 12]]
    assert check_coco_json(HERE, content) == [], "three points make a polygon"


@pytest.mark.parametrize(
    ("box", "words"),
    [
        ([2, 2, 0, 10], "no size"),
        ([2, 2, -3, 10], "no size"),
        ([50, 2, 5, 5], "outside"),
        ([2, 2, 10], "not [x, y"),
        ([2, 2, float("inf"), 3], "not [x, y"),
        (["2", 2, 3, 3], "not [x, y"),
    ],
)
def test_b055_degenerate_boxes(content: dict[str, Any], box: list[Any], words: str) -> None:
    content["annotations"][0]["bbox"] = box
    findings = check_coco_json(HERE, content)
    assert [words in finding.value for finding in findings] == [True]


def test_b055_so_few_empty_boxes_as_the_published_set_has_do_not_fail_it(
    content: dict[str, Any],
) -> None:
    one = content["annotations"][0]
    many = [one | {"id": i} for i in range(1, 20_001)]
    many[7] = many[7] | {"bbox": [2, 2, 5, 0]}
    findings = check_coco_json(HERE, content | {"annotations": many})
    assert (rules(findings), rules(findings, "note")) == ([], ["coco-box-empty"])


def test_b053_only_crowds_or_nothing_cannot_be_scored(content: dict[str, Any]) -> None:
    for one in content["annotations"]:
        one["iscrowd"] = 1
    only(check_coco_json(HERE, content), "coco-all-crowd")
    content["annotations"] = []
    only(check_coco_json(HERE, content), "coco-no-objects")


def test_unknown_image_and_category(content: dict[str, Any]) -> None:
    content["annotations"][0]["image_id"] = 99
    assert "11 (image_id 99)" in only(check_coco_json(HERE, content), "coco-image_id-unknown").value


def test_a_whole_set_is_summed_up(content: dict[str, Any], write_coco: Write) -> None:
    path = write_coco(content)
    split = CocoSplit(path, path.parent / "pictures", ("cat", "dog"), official=3)
    outcome = check_coco([split], Options(workers=1))
    assert outcome.counts == {
        "images in val.json": 2,
        "annotations in val.json": 2,
        "images without objects in val.json": 1,
        "pictures of pictures decoded": 2,
    }
    assert "2 images, the published set has 3" in only(outcome.findings, "count").value


def test_b058_missing_pictures_and_extra_ones(content: dict[str, Any], write_coco: Write) -> None:
    path = write_coco(content)
    pictures = path.parent / "pictures"
    (pictures / "b.jpg").rename(pictures / "c.jpg")
    for limit in (None, 1):  # a limit is for decoding; names are checked whole
        outcome = check_coco([CocoSplit(path, pictures)], Options(limit=limit, workers=1))
        assert only(outcome.findings, "picture-missing").file.endswith("pictures/b.jpg")
    assert "['c.jpg']" in next(f.value for f in outcome.findings if f.rule == "coco-extra")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"images": 1}', '{"images": [1]}', "\x00"])
def test_no_coco_file_at_all(write_coco: Write, text: str) -> None:
    path = write_coco(text)
    outcome = check_coco([CocoSplit(path, path.parent / "pictures")], Options(workers=1))
    assert not outcome.passed
    assert all(finding.file == str(path) for finding in outcome.findings if finding.is_error)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "latin-1"])
def test_text_that_pycocotools_cannot_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"images": [], "note": "é"}', encoding=encoding)
    content, findings = read_json(path)
    assert content is None
    assert only(findings, "json-unreadable").file == str(path)


def test_absent_json_is_named() -> None:
    content, findings = read_json(Path("nowhere.json"))
    assert content is None
    assert only(findings, "json-missing").file == "nowhere.json"


def test_polygon_compressed_and_uncompressed_masks_agree(
    content: dict[str, Any], write_coco: Write
) -> None:
    polygon = content["annotations"][0]["segmentation"]
    compressed = coco_mask.merge(coco_mask.frPyObjects(polygon, 20, 40))
    text = compressed["counts"].decode()
    forms = [
        polygon,
        {"size": [20, 40], "counts": text},
        {"size": [20, 40], "counts": decode_counts(text)},
    ]
    content["annotations"] = [
        content["annotations"][0] | {"id": i, "segmentation": form}
        for i, form in enumerate(forms, 1)
    ]
    assert check_coco_json(HERE, content) == []
    coco = COCO(str(write_coco(content)))
    masks = [coco.annToMask(coco.anns[i]) for i in (1, 2, 3)]
    assert masks[0].sum() == 100
    assert (masks[0] == masks[1]).all()
    assert (masks[0] == masks[2]).all()


def test_our_decoder_of_run_lengths_is_that_of_pycocotools() -> None:
    random = np.random.default_rng(0)
    for _ in range(100):
        height, width = (int(side) for side in random.integers(1, 60, 2))
        mask = (random.random((height, width)) < random.random()).astype(np.uint8)
        text = coco_mask.encode(np.asfortranarray(mask))["counts"].decode()
        runs = decode_counts(text)
        assert runs is not None
        again = coco_mask.frPyObjects({"size": [height, width], "counts": runs}, height, width)
        assert again["counts"].decode() == text
        assert mask_fault({"size": [height, width], "counts": text}, width, height) is None
