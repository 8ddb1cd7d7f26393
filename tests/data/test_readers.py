"""The libraries' own data-set classes read the embedded set and the trees in real layouts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mmengine.config import Config
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS, DefaultScope

from relpos_mm.data.bdpq.knobs import LETTERS, SEG_CLASSES
from relpos_mm.data.trees import write_ade_tree, write_coco_tree, write_imagenet_tree

Load = Callable[[str], Config]


def build(cfg: Config, part: str, **changes: Any) -> BaseDataset:
    """The data set of a config with its own pipeline."""
    from mmengine.registry import init_default_scope

    init_default_scope(cfg.default_scope)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        return DATASETS.build({**cfg[f"{part}_dataloader"].dataset, **changes})


def mini(load_config: Load, name: str, root: Path, part: str) -> BaseDataset:
    cfg = load_config(f"mini/{name}_swin_t_relonly.py")
    old = cfg[f"{part}_dataloader"].dataset.data_root
    return build(cfg, part, data_root=old.replace("data/bdpq", str(root)))


@pytest.mark.parametrize(("part", "count"), [("train", 16), ("val", 8)])
def test_mmpretrain_reads_letters(load_config: Load, tiny_set: Path, part: str, count: int) -> None:
    dataset = mini(load_config, "cls", tiny_set, part)
    assert len(dataset) == count
    for index in range(count):
        sample = dataset[index]
        folder = Path(sample["data_samples"].img_path).parent.name
        assert dataset.CLASSES[int(sample["data_samples"].gt_label)] == folder
        assert sample["inputs"].shape == (3, 48, 48)


@pytest.mark.parametrize(("part", "count"), [("train", 6), ("val", 3)])
def test_mmdet_reads_scenes(load_config: Load, tiny_set: Path, part: str, count: int) -> None:
    dataset = mini(load_config, "cascade", tiny_set, part)
    assert len(dataset) == count, "no scene is filtered out"
    assert dataset.metainfo["classes"] == LETTERS
    for index in range(count):
        sample = dataset[index]
        truth = sample["data_samples"].gt_instances
        assert sample["inputs"].shape == (3, 128, 128)
        assert len(truth.bboxes) == len(truth.labels) == len(truth.masks) >= 1
        assert truth.masks.masks.any((1, 2)).all()


@pytest.mark.parametrize(("part", "count"), [("train", 6), ("val", 3)])
def test_mmseg_reads_scenes(load_config: Load, tiny_set: Path, part: str, count: int) -> None:
    dataset = mini(load_config, "upernet", tiny_set, part)
    assert len(dataset) == count
    assert tuple(dataset.metainfo["classes"]) == SEG_CLASSES
    seen: set[int] = set()
    for index in range(count):
        sample = dataset[index]
        assert sample["inputs"].shape == (3, 128, 128)
        seen |= set(sample["data_samples"].gt_sem_seg.data.unique().tolist())
    assert max(seen) < len(SEG_CLASSES)
    assert max(seen) >= SEG_CLASSES.index(LETTERS[0]), "letters are labelled"


def test_mmdet_reads_the_coco_tree_as_the_real_config_does(
    load_config: Load, tmp_path: Path
) -> None:
    write_coco_tree(tmp_path, num_images=2)
    cfg = load_config("cascade_swin_t_relonly.py")
    train = build(cfg, "train", data_root=str(tmp_path))
    assert (len(train), len(train.cat_ids)) == (2, 80)
    assert len(train.get_data_info(0)["instances"]) > 0
    assert train[0]["inputs"].shape[0] == 3  # its random crop may hold no letter
    val = build(cfg, "val", data_root=str(tmp_path))
    crowds = [
        i["ignore_flag"] for info in map(val.get_data_info, range(2)) for i in info["instances"]
    ]
    assert sum(crowds) == 1
    assert crowds.count(0) > 1
    assert len(val[1]["data_samples"].ignored_instances) == 1


def test_mmseg_reads_the_ade_tree_as_the_real_config_does(
    load_config: Load, tmp_path: Path
) -> None:
    write_ade_tree(tmp_path, num_images=2)
    cfg = load_config("upernet_swin_t_relonly.py")
    for part in ("train", "val"):
        dataset = build(cfg, part, data_root=str(tmp_path))
        assert len(dataset) == 2
        labels = set(dataset[0]["data_samples"].gt_sem_seg.data.unique().tolist())
        assert 255 in labels, "unlabelled pixels are ignored after the reduction of label 0"
        assert len(labels) > 2
        assert max(labels - {255}) < 150


def test_mmpretrain_reads_the_imagenet_tree_as_the_real_config_does(
    load_config: Load, tmp_path: Path
) -> None:
    write_imagenet_tree(tmp_path, num_val=3)
    cfg = load_config("cls_swin_t_relonly.py")
    train = build(cfg, "train", data_root=str(tmp_path))
    assert len(train) == len(train.CLASSES) == 1000
    assert train[999]["inputs"].shape == (3, 224, 224)
    assert int(train[999]["data_samples"].gt_label) == 999
    val = build(cfg, "val", data_root=str(tmp_path))
    assert [int(val[i]["data_samples"].gt_label) for i in range(len(val))] == [0, 113, 226]


@pytest.mark.parametrize("write_tree", [write_coco_tree, write_ade_tree, write_imagenet_tree])
def test_trees_overwrite_nothing(tmp_path: Path, write_tree: Callable[[Path], Path]) -> None:
    (tmp_path / "real.jpg").touch()
    with pytest.raises(FileExistsError, match="not empty"):
        write_tree(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["real.jpg"]
