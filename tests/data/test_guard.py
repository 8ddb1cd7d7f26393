"""Missing data is one message; present data is none; the fingerprint follows the data."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from mmengine.config import Config

from relpos_mm.data import MissingData, data_hash, require_data
from relpos_mm.data.trees import write_ade_tree, write_coco_tree, write_imagenet_tree

Load = Callable[[str], Config]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configs name data relative to the working directory: start from an empty one."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("config", "parts"),
    [
        (
            "cascade_swin_t_relonly.py",
            [
                "data/coco/annotations/instances_train2017.json +\\(train\\)",
                "data/coco/val2017 +\\(val, test\\)",
                "train2017.zip",
                "annotations_trainval2017.zip",
                "python tools/data.py make-mini\n",
                "tools/train.py configs/mini/cascade_swin_t_relonly.py",
            ],
        ),
        (
            "upernet_swin_t_absonly.py",
            [
                "data/ade/ADEChallengeData2016/annotations/training +\\(train\\)",
                "ADEChallengeData2016.zip",
                "tools/train.py configs/mini/upernet_swin_t_",
            ],
        ),
        (
            "cls_swin_t_noenc.py",
            [
                "data/imagenet/train +\\(train\\)",
                "ILSVRC2012_img_val.tar",
                "tools/train.py configs/mini/cls_swin_t_",
            ],
        ),
    ],
)
def test_missing_real_data_names_places_archives_and_what_works_now(
    load_config: Load, config: str, parts: list[str]
) -> None:
    with pytest.raises(MissingData) as caught:
        require_data(load_config(config))
    message = str(caught.value)
    assert config in message.splitlines()[0]
    for part in parts:
        assert re.search(part, message), f"{part} is not in\n{message}"


@pytest.mark.parametrize("name", ["cascade", "upernet", "cls"])
def test_missing_embedded_data_names_the_command(load_config: Load, name: str) -> None:
    with pytest.raises(MissingData, match=r"make-mini --out data/bdpq$"):
        require_data(load_config(f"mini/{name}_swin_t_relonly.py"))


def test_only_the_parts_asked_for_are_needed(load_config: Load) -> None:
    cfg = load_config("cls_swin_t_relonly.py")
    Path("data/imagenet/val").mkdir(parents=True)
    require_data(cfg, parts=["val", "test"])
    with pytest.raises(MissingData, match="imagenet/train"):
        require_data(cfg, parts=["train"])


def test_wrapped_and_unknown_sets_are_seen_and_remote_ones_left_alone() -> None:
    coco = {"type": "CocoDataset", "ann_file": "a.json"}
    mine = coco | {"data_root": "mine", "metainfo": {"classes": ("a",)}}
    repeated = {"type": "RepeatDataset", "dataset": mine}
    joined = {"type": "ConcatDataset", "datasets": [coco | {"data_root": "s3://bucket"}, repeated]}
    cfg = Config({"train_dataloader": {"dataset": joined}, "task": "segmentation"})
    with pytest.raises(MissingData) as caught:
        require_data(cfg)
    message = str(caught.value)
    assert "mine/a.json" in message
    assert "s3" not in message
    assert "no set that the project knows" in message
    assert "configs/mini/upernet_swin_t_relonly.py" in message


def test_present_data_passes(load_config: Load, tiny_set: Path) -> None:
    Path("data").mkdir()
    Path("data/bdpq").symlink_to(tiny_set)
    for name in ("cascade", "upernet", "cls"):
        require_data(load_config(f"mini/{name}_swin_t_relonly.py"))


def test_trees_satisfy_the_real_configs(load_config: Load) -> None:
    write_coco_tree("data/coco", num_images=1)
    write_ade_tree("data/ade/ADEChallengeData2016", num_images=1)
    write_imagenet_tree("data/imagenet", num_classes=2, num_val=1)
    for name in ("cascade", "upernet", "cls"):
        require_data(load_config(f"{name}_swin_t_relonly.py"))


def test_hash_of_embedded_data_is_that_of_its_manifest(load_config: Load, tiny_set: Path) -> None:
    configs = [
        load_config(f"mini/{name}_swin_t_noenc.py") for name in ("cascade", "upernet", "cls")
    ]
    assert [data_hash(cfg) for cfg in configs] == [None, None, None]
    Path("data").mkdir()
    Path("data/bdpq").symlink_to(tiny_set)
    found = {data_hash(cfg) for cfg in configs}
    assert len(found) == 1
    assert re.fullmatch("[0-9a-f]{64}", str(found.pop()))


def test_hash_of_real_data_follows_annotations_and_file_names(load_config: Load) -> None:
    cfg = load_config("cascade_swin_t_relonly.py")
    write_coco_tree("data/coco", num_images=1)
    seen = [data_hash(cfg)]
    assert data_hash(cfg) == seen[0]
    Path("data/coco/val2017/more.jpg").write_bytes(b"1")
    seen.append(data_hash(cfg))
    with Path("data/coco/annotations/instances_train2017.json").open("a") as file:
        file.write(" ")
    seen.append(data_hash(cfg))
    assert len(set(seen)) == 3
