"""The cheap rules that every training and test applies before anything is built."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mmengine.config import Config
from PIL import Image

from relpos_mm.data.check.start import BadData, check_start
from relpos_mm.data.trees import write_ade_tree, write_imagenet_tree

Load = Callable[[str], Config]
Write = Callable[[Any], Path]


def coco_config(path: Path, **changes: Any) -> Config:
    """A detection config that reads the small COCO set for training and validation."""
    dataset = dict(
        type="CocoDataset",
        ann_file=str(path),
        data_prefix=dict(img=str(path.parent / "pictures")),
        metainfo=dict(classes=("cat", "dog")),
        filter_cfg=dict(filter_empty_gt=True, min_size=1),
        pipeline=[dict(type="LoadAnnotations", with_bbox=True, with_mask=True)],
        **changes,
    )
    return Config(
        dict(
            default_scope="mmdet",
            train_dataloader=dict(dataset=dataset),
            val_dataloader=dict(dataset=dataset),
            val_evaluator=dict(type="CocoMetric", ann_file=str(path), metric=["bbox", "segm"]),
        )
    )


def refusal(cfg: Config, *parts: str) -> str:
    with pytest.raises(BadData) as caught:
        check_start(cfg, parts)
    return str(caught.value)


def test_embedded_set_passes(
    load_config: Load, tiny_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("data/bdpq").symlink_to(tiny_set)
    for name in ("cascade", "upernet", "cls"):
        check_start(load_config(f"mini/{name}_swin_t_relonly.py"), ["train", "val", "test"])


def test_b048_missing_field_is_found_before_training(
    content: dict[str, Any], write_coco: Write
) -> None:
    del content["annotations"][0]["area"]
    message = refusal(coco_config(write_coco(content)), "train")
    assert "'area' is missing or wrong in annotations 11" in message
    assert "val.json" in message


def test_b048_boxes_alone_need_no_segmentation(content: dict[str, Any], write_coco: Write) -> None:
    for one in content["annotations"]:
        del one["segmentation"]
    cfg = coco_config(write_coco(content))
    assert "metric='bbox'" in refusal(cfg, "val")
    cfg.val_evaluator.metric = "bbox"
    check_start(cfg, ["val"])


def test_b051_classes_of_config_and_file(content: dict[str, Any], write_coco: Write) -> None:
    cfg = coco_config(write_coco(content))
    del cfg.train_dataloader.dataset["metainfo"]
    message = refusal(cfg, "train")
    assert "it has no category called 'person', 'bicycle'" in message
    assert "the file has 'cat', 'dog'" in message


def test_b055_bad_polygon_is_left_out_of_training_and_refused_in_evaluation(
    content: dict[str, Any], write_coco: Write, caplog: pytest.LogCaptureFixture
) -> None:
    content["annotations"][1]["segmentation"] = [[2, 2, 12, 12]]
    cfg = coco_config(write_coco(content))
    check_start(cfg, ["train"])
    assert "4 numbers, fewer than 6 (3 points): annotations 12" in refusal(cfg, "val")


def test_b058_nothing_left_says_which_filter_removed_how_many(
    content: dict[str, Any], write_coco: Write
) -> None:
    cfg = coco_config(write_coco(content))
    check_start(cfg, ["train"])
    cfg.train_dataloader.dataset.filter_cfg.min_size = 32
    message = refusal(cfg, "train")
    assert "of 2 images 0 are left for training" in message
    assert "1 without an object" in message
    assert "1 smaller than 32 px (min_size)" in message
    assert "0 images" in refusal(coco_config(write_coco(content | {"images": []})), "train")


def test_b058_first_missing_picture_sub_folders_and_absolute_names(
    content: dict[str, Any], write_coco: Write, tmp_path: Path
) -> None:
    pictures = tmp_path / "pictures"
    path = write_coco(content)
    (pictures / "deep").mkdir()
    (pictures / "a.jpg").rename(pictures / "deep/a.jpg")
    message = refusal(coco_config(path), "train")
    assert f"1 of 2 pictures are missing, first: {pictures / 'a.jpg'}" in message
    content["images"][0]["file_name"] = "deep/a.jpg"
    content["images"][1]["file_name"] = str(pictures / "b.jpg")
    path.write_text(json.dumps(content))
    check_start(coco_config(path), ["train", "val"])


def test_b059_a_file_without_annotations_may_be_predicted_on_alone(
    content: dict[str, Any], write_coco: Write
) -> None:
    del content["annotations"]
    cfg = coco_config(write_coco(content))
    assert "'annotations': there is none" in refusal(cfg, "val")
    cfg.val_evaluator.format_only = True
    check_start(cfg, ["val"])


def test_only_the_first_process_reads_everything(
    content: dict[str, Any], write_coco: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = coco_config(write_coco(content | {"images": []}))
    monkeypatch.setenv("RANK", "1")
    check_start(cfg, ["train"])
    monkeypatch.setenv("RANK", "0")
    refusal(cfg, "train")


@pytest.mark.parametrize("changes", [dict(type="LVISV1Dataset"), dict(data_root="s3://bucket")])
def test_sets_that_are_read_in_another_way_are_left_to_their_library(
    write_coco: Write, changes: dict[str, str]
) -> None:
    cfg = coco_config(write_coco({}))
    refusal(cfg, "train")
    cfg.train_dataloader.dataset.update(changes)
    check_start(cfg, ["train"])


@pytest.fixture
def ade(load_config: Load, tmp_path: Path) -> Config:
    """The real segmentation config on a small tree."""
    cfg = load_config("upernet_swin_t_relonly.py")
    root = write_ade_tree(tmp_path / "ade", num_images=2)
    for part in ("train", "val", "test"):
        cfg[f"{part}_dataloader"].dataset.data_root = str(root)
    check_start(cfg, ["train", "val", "test"])
    return cfg


def test_b066_data_set_and_transform_disagree(ade: Config) -> None:
    load = next(s for s in ade.val_dataloader.dataset.pipeline if s.type == "LoadAnnotations")
    load.reduce_zero_label = False
    assert "labels would be off by one class" in refusal(ade, "val")
    load.reduce_zero_label = True
    ade.val_dataloader.dataset.reduce_zero_label = False
    assert "the training split has True" in refusal(ade, "val")


def test_b071_label_loaded_before_the_resize(ade: Config) -> None:
    pipeline = ade.val_dataloader.dataset.pipeline
    pipeline.insert(1, pipeline.pop(2))
    assert pipeline[1].type == "LoadAnnotations"
    assert "the label is loaded before the resize" in refusal(ade, "val")


def test_b070_and_b068_pairs_and_values(ade: Config) -> None:
    root = Path(ade.train_dataloader.dataset.data_root)
    first, second = sorted((root / "annotations/training").iterdir())
    Image.fromarray(np.full((480, 640), 151, np.uint8)).save(first)
    message = refusal(ade, "train")
    assert f"{first}: values 151 are out of range" in message
    second.rename(second.with_suffix(".PNG"))
    message = refusal(ade, "train")
    assert "1 .PNG beside 1 .png" in message
    assert "2 pictures (.jpg), 1 label files (.png)" in message


def test_label_files_of_a_set_with_a_part_of_its_classes(ade: Config) -> None:
    for part in ("train", "val", "test"):
        ade[f"{part}_dataloader"].dataset.metainfo = dict(classes=("wall", "sky"))
    check_start(ade, ["train", "val"])


def test_b083_folders_against_the_head(load_config: Load, tmp_path: Path) -> None:
    root = write_imagenet_tree(tmp_path / "imagenet", num_classes=12, num_val=2)
    cfg = load_config("cls_swin_t_relonly.py")
    for part in ("train", "val"):
        cfg[f"{part}_dataloader"].dataset.data_root = str(root)
    cfg.model.head.num_classes = 10
    message = refusal(cfg, "train")
    assert f"{root}/train: 12 class folders, the model has 10 classes" in message
    (root / "meta/val.txt").write_text("ILSVRC2012_val_00000001.JPEG 12\n")
    assert "numbers run from 12 to 12, but 12 classes are 0 to 11" in refusal(cfg, "val")
    (root / "meta/val.txt").unlink()
    assert "no class folder; 2 pictures lie loose" in refusal(cfg, "val")


def test_b081_list_that_is_proved_wrong_stops_the_run(load_config: Load, tmp_path: Path) -> None:
    root = write_imagenet_tree(tmp_path / "imagenet", num_classes=4, num_val=1)
    cfg = load_config("cls_swin_t_relonly.py")
    cfg.val_dataloader.dataset.data_root = str(root)
    check_start(cfg, ["val"])
    (root / "meta/synsets.txt").write_text("n00000003\nn00000001\nn00000004\nn00000002\n")
    assert "is not the sorted list" in refusal(cfg, "val")
