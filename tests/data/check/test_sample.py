"""Every sample is checked on its way to the model; errors name its file and index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mmengine.config import Config
from mmengine.registry import DATASETS, DefaultScope, init_default_scope
from PIL import Image
from torch.utils.data import DataLoader

from relpos_mm.checks.model import build_on_meta, check_classes
from relpos_mm.data.check.sample import BadSample, CheckedPipeline, check_samples
from relpos_mm.data.reading import read_raw_grid
from relpos_mm.engine.checked_runner import CheckedRunner
from relpos_mm.engine.errors import UserError

Write = Callable[[Any], Path]


def built(scope: str, cfg: dict[str, Any]) -> Any:
    """A data set whose samples are checked, in a wrapper as configs use them."""
    config = Config(dict(train_dataloader=dict(dataset=cfg)))
    read_raw_grid(config)
    init_default_scope(scope)
    with DefaultScope.overwrite_default_scope(scope):
        dataset = DATASETS.build(config.train_dataloader.dataset)
    check_samples(dataset)
    return dataset


def detection(path: Path) -> Any:
    pipeline = [
        dict(type="LoadImageFromFile"),
        dict(type="LoadAnnotations", with_bbox=True, with_mask=True),
        dict(type="PackDetInputs"),
    ]
    inner = dict(
        type="CocoDataset",
        ann_file=str(path),
        data_prefix=dict(img=str(path.parent / "pictures")),
        metainfo=dict(classes=("cat", "dog")),
        pipeline=pipeline,
    )
    return built("mmdet", dict(type="RepeatDataset", times=2, dataset=inner))


def segmentation(folder: Path, test: bool = False) -> Any:
    steps = [dict(type="LoadAnnotations"), dict(type="Resize", scale=(8, 8), keep_ratio=False)]
    for kind in ("img", "seg"):
        (folder / kind).mkdir(exist_ok=True)
    Image.new("RGB", (6, 4)).save(folder / "img/a.png")
    return built(
        "mmseg",
        dict(
            type="BaseSegDataset",
            data_prefix=dict(img_path=str(folder / "img"), seg_map_path=str(folder / "seg")),
            metainfo=dict(classes=("x", "y", "z")),
            img_suffix=".png",
            reduce_zero_label=True,
            pipeline=[
                dict(type="LoadImageFromFile"),
                *(reversed(steps) if test else steps),
                dict(type="PackSegInputs"),
            ],
        ),
    )


def test_good_samples_pass_unchanged_and_empty_ones_too(
    content: dict[str, Any], write_coco: Write
) -> None:
    dataset = detection(write_coco(content))
    assert isinstance(dataset.dataset.pipeline, CheckedPipeline)
    assert [len(dataset[i]["data_samples"].gt_instances) for i in range(4)] == [2, 0, 2, 0]
    check_samples(dataset)
    assert isinstance(dataset.dataset.pipeline.transforms[0], object)
    assert len(dataset.dataset.pipeline.transforms) == 3, "checking twice wraps once"


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_carries_path_index_and_step_also_from_a_loader_process(
    content: dict[str, Any], write_coco: Write, workers: int
) -> None:
    path = write_coco(content)
    picture = path.parent / "pictures/b.jpg"
    picture.write_bytes(b"no picture")
    loader = DataLoader(detection(path), num_workers=workers, collate_fn=list)
    with pytest.raises(BadSample) as caught:
        list(loader)
    message = str(caught.value)
    assert message.startswith(f"{picture} (index 1 of CocoDataset {path}), LoadImageFromFile: ")
    assert "Traceback" not in message


def test_cut_picture_is_refused(content: dict[str, Any], write_coco: Write) -> None:
    path = write_coco(content)
    picture = path.parent / "pictures/a.jpg"
    for size in (900, 600):  # OpenCV reads a part of the first and nothing of the second
        Image.fromarray(np.arange(2400, dtype=np.uint8).reshape(20, 40, 3)).save(picture)
        picture.write_bytes(picture.read_bytes()[:size])
        refused(path)


def refused(path: Path) -> None:
    with pytest.raises(BadSample, match=r"a\.jpg \(index 0 of .*the file ends too early"):
        detection(path)[0]


def test_b077_picture_of_another_size_than_its_json(
    content: dict[str, Any], write_coco: Write
) -> None:
    path = write_coco(content)
    Image.new("RGB", (20, 40)).save(path.parent / "pictures/a.jpg")
    with pytest.raises(BadSample, match="20 x 40 px, its annotations say 40 x 20"):
        detection(path)[0]


def test_b066_zero_is_dropped_once_in_training_and_test_order(tmp_path: Path) -> None:
    for test in (False, True):
        dataset = segmentation(tmp_path, test)
        values = np.repeat([[0, 1, 2, 3, 255, 1]], 4, 0).astype(np.uint8)
        Image.fromarray(values).save(tmp_path / "seg/a.png")
        label = dataset[0]["data_samples"].gt_sem_seg.data
        assert sorted(label.unique().tolist()) == [0, 1, 2, 255]
        assert label.shape[-2:] == ((4, 6) if test else (8, 8)), "a test keeps the label's size"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.full((4, 6), 4, np.uint8), "values 4 are out of range; allowed are 1 to 3"),
        (np.full((4, 6, 3), 1, np.uint8), "a colour picture"),
        (np.full((4, 6), 257, np.uint16), "16 bits"),
        (np.full((6, 4), 1, np.uint8), "4 x 6 px, its picture 6 x 4"),
    ],
)
def test_b068_label_is_named_before_the_model_sees_it(
    tmp_path: Path, values: np.ndarray, words: str
) -> None:
    dataset = segmentation(tmp_path)
    Image.fromarray(values).save(tmp_path / "seg/a.png")
    with pytest.raises(BadSample) as caught:
        dataset[0]
    assert words in str(caught.value)
    assert str(tmp_path / "seg/a.png") in str(caught.value)
    assert "index 0 of BaseSegDataset" in str(caught.value)


def test_class_out_of_range_is_named(tmp_path: Path) -> None:
    Image.new("RGB", (6, 4)).save(tmp_path / "a.png")
    (tmp_path / "list.txt").write_text("a.png 3\n")
    dataset = built(
        "mmpretrain",
        dict(
            type="CustomDataset",
            data_root=str(tmp_path),
            ann_file="list.txt",
            metainfo=dict(classes=("x", "y", "z")),
            pipeline=[dict(type="LoadImageFromFile"), dict(type="PackInputs")],
        ),
    )
    with pytest.raises(BadSample, match=r"a\.png .*class 3 is out of range; allowed are 0 to 2"):
        dataset[0]


def test_variants_of_test_time_augmentation_are_checked(tmp_path: Path) -> None:
    dataset = segmentation(tmp_path)
    variants = [[dict(type="Resize", scale=s) for s in ((8, 8), (12, 12))]]
    steps = [[dict(type="LoadAnnotations")], [dict(type="PackSegInputs")]]
    with DefaultScope.overwrite_default_scope("mmseg"):
        from mmengine.dataset import Compose

        augmented = dict(type="TestTimeAug", transforms=variants + steps)
        dataset.pipeline = Compose([dict(type="LoadImageFromFile"), augmented])
    check_samples(dataset)
    Image.fromarray(np.full((4, 6), 2, np.uint8)).save(tmp_path / "seg/a.png")
    assert len(dataset[0]["inputs"]) == 2
    Image.fromarray(np.full((4, 6), 9, np.uint8)).save(tmp_path / "seg/a.png")
    with pytest.raises(BadSample, match="values 9 are out of range"):
        dataset[0]


HEADS = [
    ("cascade", "model.roi_head.bbox_head.2.num_classes"),
    ("cascade", "model.roi_head.mask_head.num_classes"),
    ("upernet", "model.auxiliary_head.num_classes"),
]


def with_classes(cfg: Config, key: str, count: int) -> Config:
    *parts, last = key.split(".")
    node: Any = cfg
    for part in parts:
        node = node[int(part)] if part.isdigit() else node[part]
    node[last] = count
    return cfg


@pytest.mark.parametrize(("name", "key"), HEADS)
def test_b052_each_head_with_another_class_count_is_named_by_its_key(
    load_config: Callable[[str], Config], name: str, key: str
) -> None:
    cfg = with_classes(load_config(f"mini/{name}_swin_t_relonly.py"), key, 7)
    problems = list(check_classes(Path("x.py"), cfg, build_on_meta(cfg)))
    assert [problem.key for problem in problems] == [key]


def test_b052_a_run_with_such_a_head_is_not_built(
    load_config: Callable[[str], Config], tmp_path: Path
) -> None:
    cfg = with_classes(load_config("mini/upernet_swin_t_relonly.py"), HEADS[2][1], 7)
    cfg.work_dir = str(tmp_path)
    with pytest.raises(
        UserError, match=r"auxiliary_head\.num_classes = 7: .*Set it to 13 in every"
    ):
        CheckedRunner.from_cfg(cfg)
