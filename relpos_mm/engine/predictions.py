"""A library's prediction as plain values and as a drawn picture, per task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.visualization import Visualizer
from PIL import Image

_TOP = 5


def detections(sample: Any, classes: Sequence[str], score_thr: float) -> dict[str, Any]:
    """Return objects above the threshold: class, score, box ``x1 y1 x2 y2`` in px, mask as RLE."""
    found = sample.pred_instances.cpu()
    found = found[found.scores >= score_thr]
    objects = [
        {
            "class": classes[label],
            "score": round(score, 4),
            "box_px": [round(side, 2) for side in box],
        }
        for label, score, box in zip(
            found.labels.tolist(), found.scores.tolist(), found.bboxes.tolist(), strict=True
        )
    ]
    if "masks" in found:
        for one, mask in zip(objects, np.asarray(found.masks), strict=True):
            one["mask_rle"] = _rle(mask)
    return {"objects": objects}


def segmentation(sample: Any, classes: Sequence[str], label_map: Path) -> dict[str, Any]:
    """Write the label map (a grey PNG of class numbers) and return the share of every class."""
    labels = sample.pred_sem_seg.data.squeeze(0).cpu().numpy()
    Image.fromarray(labels.astype(np.uint8 if len(classes) <= 256 else np.uint16)).save(label_map)
    counts = np.bincount(labels.ravel(), minlength=len(classes))
    shares = {
        name: round(100 * float(count) / labels.size, 3)
        for name, count in zip(classes, counts, strict=True)
        if count
    }
    return {"label_map": label_map.name, "share_pct": shares}


def classification(sample: Any, classes: Sequence[str]) -> dict[str, Any]:
    """Return the classes of highest score, best first."""
    scores, labels = sample.pred_score.cpu().sort(descending=True)
    best = zip(labels.tolist()[:_TOP], scores.tolist()[:_TOP], strict=True)
    return {"top": [{"class": classes[label], "score": round(score, 4)} for label, score in best]}


def draw(
    visualizer: Visualizer,
    picture: np.ndarray,
    sample: Any,
    classes: Sequence[str],
    out: Path,
    score_thr: float,
) -> None:
    """Draw a prediction with the library's own visualiser into ``out``."""
    common = {"draw_gt": False, "out_file": str(out)}
    if hasattr(visualizer, "visualize_cls"):
        visualizer.visualize_cls(picture, sample, classes=classes, **common)
    elif "pred_instances" in sample:
        visualizer.add_datasample(out.stem, picture, sample, pred_score_thr=score_thr, **common)
    else:
        # As numpy: a one-pixel torch mask would index numpy as a number.
        visualizer.add_datasample(out.stem, picture, sample.numpy(), **common)


def _rle(mask: np.ndarray) -> dict[str, Any]:
    from pycocotools import mask as coco

    encoded = coco.encode(np.asfortranarray(mask.astype(np.uint8)))
    return {"size": list(encoded["size"]), "counts": encoded["counts"].decode()}
