"""How much of a difference is due to the choice of pictures, apart from that of seeds.

AP is not a mean over pictures, so each resample is evaluated anew: hotcoco does that. mIoU comes
from the summed pixel counts of the resampled pictures.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from .spec import ROOT

_RESAMPLES = 1000
_KIND = {"box_ap": ("bbox", "predictions.bbox.json"), "mask_ap": ("segm", "predictions.segm.json")}


@dataclass(frozen=True)
class ImageSpread:
    """Spread of one seed's difference over resampled pictures.

    Attributes:
        error: Standard error.
        low: Lower end of the 95 % interval.
        high: Upper end.
        per_class: Difference by class, where the method gives it.
    """

    error: float
    low: float
    high: float
    per_class: dict[str, float]


def has_hotcoco() -> bool:
    """Return whether the optional library of the AP bootstrap is there."""
    return importlib.util.find_spec("hotcoco") is not None


def image_spread(
    one: Path, other: Path, metric: str, content: dict[str, Any]
) -> ImageSpread | None:
    """Resample the pictures of two runs, the same for both; None where the evidence is missing.

    Args:
        one: Folder of a run; its metric minus that of ``other`` is looked at.
        other: Folder of the control's run.
        metric: Name of the metric.
        content: ``result.json`` of one of them, which names the annotation file.
    """
    if metric == "miou_pct":
        files = [folder / "counts.npz" for folder in (one, other)]
        return miou_spread(*files) if all(file.is_file() for file in files) else None
    if metric not in _KIND or not has_hotcoco():
        return None
    kind, name = _KIND[metric]
    evaluator = (content.get("config_content") or {}).get("val_evaluator")
    annotations = evaluator.get("ann_file") if isinstance(evaluator, dict) else None
    files = [folder / name for folder in (one, other)]
    if not annotations or not all(file.is_file() for file in [*files, ROOT / annotations]):
        return None
    return ap_spread(ROOT / annotations, files[0], files[1], kind)


@cache
def _evaluated(annotations: Path, predictions: Path, kind: str) -> Any:
    import hotcoco

    truth = hotcoco.COCO(str(annotations))
    found = hotcoco.COCOeval(truth, truth.load_res(str(predictions)), kind)
    found.evaluate()
    found.accumulate()
    return found


def ap_spread(annotations: Path, one: Path, other: Path, kind: str) -> ImageSpread:
    """Bootstrap the difference in AP of two files of predictions (fractions)."""
    import hotcoco

    result = hotcoco.compare(
        _evaluated(annotations, other, kind),
        _evaluated(annotations, one, kind),
        n_bootstrap=_RESAMPLES,
        seed=0,
    )
    ci = result["ci"]["AP"]
    rows = sorted(result["per_category"], key=lambda row: row["cat_id"])
    classes = {row["cat_name"]: row["delta"] for row in rows}
    return ImageSpread(ci["std_err"], ci["lower"], ci["upper"], classes)


def miou_spread(one: Path, other: Path) -> ImageSpread:
    """Bootstrap the difference in mIoU, in per cent, of two files of counts per picture."""
    first, second = _areas(one), _areas(other)
    pictures = np.arange(len(first))

    def difference(chosen: np.ndarray) -> float:
        return _miou(first[chosen]) - _miou(second[chosen])

    result = stats.bootstrap(
        (pictures,),
        difference,
        n_resamples=_RESAMPLES,
        vectorized=False,
        method="percentile",
        rng=0,
    )
    interval = result.confidence_interval
    with np.load(one) as content:
        names = [str(name) for name in content["classes"]]
    change = 100 * (_iou(first.sum(0)) - _iou(second.sum(0)))
    per_class = {n: float(c) for n, c in zip(names, change, strict=True) if np.isfinite(c)}
    return ImageSpread(
        float(result.standard_error), float(interval.low), float(interval.high), per_class
    )


def _areas(path: Path) -> np.ndarray:
    """Return hits, truth and prediction in pixels: (pictures, 3, classes)."""
    with np.load(path) as content:
        counts = content["counts"]
    hits = np.diagonal(counts, axis1=1, axis2=2)
    return np.stack([hits, counts.sum(2), counts.sum(1)], axis=1)


def _iou(areas: np.ndarray) -> np.ndarray:
    hits, truth, guess = areas
    union = truth + guess - hits
    return np.divide(hits, union, out=np.full(len(hits), np.nan), where=union > 0)


def _miou(areas: np.ndarray) -> float:
    return 100 * float(np.nanmean(_iou(areas.sum(0))))


def typical(spreads: Sequence[ImageSpread]) -> float | None:
    """Return the median standard error over seeds."""
    return float(np.median([s.error for s in spreads])) if spreads else None
