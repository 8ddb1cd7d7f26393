"""Letters as COCO instances: visible masks as run lengths, boxes and areas of what is visible."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from pycocotools import mask as rle

from relpos_mm.data.bdpq.knobs import LETTERS


def coco_annotations(letters: list[tuple[int, np.ndarray]]) -> list[dict[str, Any]]:
    """Annotations of one picture, still without ids.

    Args:
        letters: Class id and visible mask (H, W) bool of each letter; none is empty.
    """
    annotations = []
    for letter, mask in letters:
        packed = rle.encode(np.asfortranarray(mask.astype(np.uint8)))
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        x, y = int(columns[0]), int(rows[0])
        annotations.append(
            {
                "category_id": letter + 1,
                "bbox": [x, y, int(columns[-1]) + 1 - x, int(rows[-1]) + 1 - y],
                "area": int(mask.sum()),
                "iscrowd": 0,
                "segmentation": {
                    "size": [int(side) for side in mask.shape],
                    "counts": packed["counts"].decode("ascii"),
                },
            }
        )
    return annotations


def coco_file(per_scene: list[list[dict[str, Any]]], size_px: int) -> str:
    """The text of one annotation file; pictures, annotations and categories count from 1.

    An annotation with id 0 would never count as found in COCO's evaluation.
    """
    pairs = [(image, a) for image, found in enumerate(per_scene, 1) for a in found]
    content = {
        "images": [
            {"id": i, "file_name": f"{i:06d}.png", "width": size_px, "height": size_px}
            for i in range(1, len(per_scene) + 1)
        ],
        "annotations": [{"id": i, "image_id": image} | a for i, (image, a) in enumerate(pairs, 1)],
        "categories": [
            {"id": i, "name": name, "supercategory": "letter"} for i, name in enumerate(LETTERS, 1)
        ],
    }
    return json.dumps(content, sort_keys=True, separators=(",", ":")) + "\n"
