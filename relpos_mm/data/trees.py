"""Small trees in the folder layouts of COCO, ADE20K and ImageNet, made of embedded pictures.

They let a config for the real data run exactly as it is: same loaders, same classes, same file
names. Labels are letters under other names; nothing can be learnt from them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from relpos_mm.data.bdpq.coco import coco_annotations
from relpos_mm.data.bdpq.knobs import Knobs
from relpos_mm.data.bdpq.scene import Split, compose_scene

_SEED = 2017
_SIZES = ((640, 480), (480, 640), (500, 375), (333, 500))  # (width, height), as real photographs
_JPEG_QUALITY = 90
# COCO's 80 categories are numbered from 1 to 90 with these left out.
_COCO_UNUSED = (12, 26, 29, 30, 45, 66, 68, 69, 71, 83)


def write_coco_tree(root: str | Path, num_images: int = 4) -> Path:
    """Writes `annotations/instances_{train,val}2017.json`, `train2017/` and `val2017/`.

    Polygons for things, and one crowd region per split as uncompressed run lengths, as in COCO.

    Args:
        root: The folder that a COCO config calls `data_root`; must be empty or absent.
        num_images: Pictures per split.

    Raises:
        FileExistsError: `root` holds something already.
    """
    from mmdet.datasets import CocoDataset

    root = _new_folder(root)
    numbers = [n for n in range(1, 91) if n not in _COCO_UNUSED]
    categories = [
        {"id": number, "name": name, "supercategory": "any"}
        for number, name in zip(numbers, CocoDataset.METAINFO["classes"], strict=True)
    ]
    (root / "annotations").mkdir()
    for split, first in (("train2017", 0), ("val2017", num_images)):
        (root / split).mkdir()
        images: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        for index, (picture, _, letters) in _pictures(first, num_images):
            name = f"{index + 1:012d}.jpg"
            _write_jpeg(root / split / name, picture)
            height, width = picture.shape[:2]
            images.append({"id": index + 1, "file_name": name, "width": width, "height": height})
            for annotation, (letter, mask) in zip(coco_annotations(letters), letters, strict=True):
                annotation["segmentation"] = _polygons(mask)
                annotation["category_id"] = numbers[(7 * letter + index) % len(numbers)]
                annotations.append(annotation | {"image_id": index + 1})
        crowd = annotations[-1]
        crowd |= {"iscrowd": 1, "segmentation": _run_lengths(letters[-1][1])}
        content = {
            "info": {"description": "embedded pictures in COCO's layout"},
            "licenses": [],
            "images": images,
            "annotations": [a | {"id": i} for i, a in enumerate(annotations, 1)],
            "categories": categories,
        }
        (root / "annotations" / f"instances_{split}.json").write_text(json.dumps(content))
    return root


def write_ade_tree(root: str | Path, num_images: int = 4) -> Path:
    """Writes `images/{training,validation}/` and `annotations/{training,validation}/`.

    Label maps use 0 for unlabelled pixels and 1 to 150 for classes, as the challenge release does.

    Args:
        root: The folder that an ADE20K config calls `data_root` (`.../ADEChallengeData2016`); must
            be empty or absent.
        num_images: Pictures per split.

    Raises:
        FileExistsError: `root` holds something already.
    """
    root = _new_folder(root)
    for split, short, first in (("training", "train", 0), ("validation", "val", num_images)):
        pictures, labels = root / "images" / split, root / "annotations" / split
        pictures.mkdir(parents=True)
        labels.mkdir(parents=True)
        for index, (picture, label, _) in _pictures(first, num_images):
            name = f"ADE_{short}_{index - first + 1:08d}"
            _write_jpeg(pictures / f"{name}.jpg", picture)
            ade_label = (label.astype(np.int64) * 11 + index) % 150 + 1
            ade_label[:, ::16] = 0  # lines that every crop contains
            _write(labels / f"{name}.png", cv2.imencode(".png", ade_label.astype(np.uint8)))
    return root


def write_imagenet_tree(root: str | Path, num_classes: int = 1000, num_val: int = 8) -> Path:
    """Writes `train/<class>/*.JPEG` (one picture per class), a flat `val/` and its `meta/val.txt`.

    `meta/synsets.txt` beside the list proves the order of its numbers, which the check asks for.

    Args:
        root: The folder that an ImageNet config calls `data_root`; must be empty or absent.
        num_classes: Class folders; mmpretrain's data set wants all 1,000 of them.
        num_val: Pictures of the validation split.

    Raises:
        FileExistsError: `root` holds something already.
    """
    root = _new_folder(root)
    encoded = [_jpeg(picture) for _, (picture, _, _) in _pictures(0, 8)]
    classes = [f"n{number + 1:08d}" for number in range(num_classes)]
    for number, wnid in enumerate(classes):
        (root / "train" / wnid).mkdir(parents=True)
        picture = encoded[number % len(encoded)]
        (root / "train" / wnid / f"{wnid}_1.JPEG").write_bytes(picture)
    (root / "val").mkdir()
    (root / "meta").mkdir()
    lines = []
    for number in range(num_val):
        name = f"ILSVRC2012_val_{number + 1:08d}.JPEG"
        (root / "val" / name).write_bytes(encoded[number % len(encoded)])
        lines.append(f"{name} {number * 113 % num_classes}\n")
    (root / "meta" / "val.txt").write_text("".join(lines))
    (root / "meta" / "synsets.txt").write_text("".join(f"{wnid}\n" for wnid in classes))
    return root


TREES = {"coco": write_coco_tree, "ade20k": write_ade_tree, "imagenet": write_imagenet_tree}

_Picture = tuple[np.ndarray, np.ndarray, list[tuple[int, np.ndarray]]]


def _new_folder(root: str | Path) -> Path:
    root = Path(root)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise FileExistsError(f"{root} is not empty: name a new folder, nothing is overwritten")
    root.mkdir(parents=True, exist_ok=True)
    return root


def _pictures(first: int, count: int) -> Iterator[tuple[int, _Picture]]:
    for index in range(first, first + count):
        yield index, _photograph_like(index)


@lru_cache(maxsize=16)
def _photograph_like(index: int) -> _Picture:
    """A scene stretched to the size of a photograph, with its label map and letter masks."""
    size = _SIZES[index % len(_SIZES)]
    scene = compose_scene(Knobs(), Split(9, 160), _SEED, index)

    def stretch(array: np.ndarray, how: int = cv2.INTER_NEAREST) -> np.ndarray:
        return cv2.resize(array, size, interpolation=how)

    letters = [(letter, stretch(mask.astype(np.uint8)) > 0) for letter, mask in scene.letters]
    return stretch(scene.picture, cv2.INTER_LINEAR), stretch(scene.labels), letters


def _polygons(mask: np.ndarray) -> list[list[float]]:
    """Outlines of a mask; its holes are filled, which COCO's polygons cannot express."""
    outlines, _ = cv2.findContours(
        mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE
    )
    return [outline.ravel().tolist() for outline in outlines if len(outline) >= 3]


def _run_lengths(mask: np.ndarray) -> dict[str, list[int]]:
    """COCO's uncompressed form: lengths of runs of 0 and 1 in turn, column by column."""
    flat = np.concatenate([[0], mask.T.ravel().astype(np.int8)])
    changes = np.flatnonzero(np.diff(flat))
    bounds = np.concatenate([[0], changes, [flat.size - 1]])
    return {"size": list(mask.shape), "counts": np.diff(bounds).tolist()}


def _write_jpeg(path: Path, picture: np.ndarray) -> None:
    path.write_bytes(_jpeg(picture))


def _jpeg(picture: np.ndarray) -> bytes:
    bgr = np.ascontiguousarray(picture[:, :, ::-1])
    done, encoded = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    assert done
    return encoded.tobytes()


def _write(path: Path, encoded: tuple[bool, np.ndarray]) -> None:
    done, content = encoded
    assert done
    path.write_bytes(content.tobytes())
