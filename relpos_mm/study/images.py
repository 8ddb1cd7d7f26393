"""How much of a difference is due to the choice of pictures, apart from that of seeds.

AP is not a mean over pictures, so each resample is evaluated anew: hotcoco does that. mIoU comes
from the summed pixel counts of the resampled pictures, top-1 from their labels.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from .records import Record
from .spec import ROOT

_RESAMPLES = 1000
_KIND = {"box_ap": "bbox", "mask_ap": "segm"}


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


def image_spread(one: Record, other: Record, metric: str) -> ImageSpread | None:
    """Resample the pictures of two runs, the same for both; None where the evidence is missing.

    Args:
        one: A run; its metric minus that of ``other`` is looked at.
        other: The control's run.
        metric: Name of the metric.
    """
    if metric in _PER_PICTURE:
        first, second = _arrays(one.evidence("npz")), _arrays(other.evidence("npz"))
        there = _fit(first, second, metric)
        return _PER_PICTURE[metric](first, second) if there else None
    source = other.evidence("coco.json")
    if metric not in _KIND or source is None or not has_hotcoco():
        return None
    kind = _KIND[metric]
    annotations = ROOT / json.loads(source.read_text())["ann_file"]
    found, control = one.evidence(f"{kind}.json"), other.evidence(f"{kind}.json")
    if found is None or control is None or not annotations.is_file():
        return None
    if b"[]" in (found.read_bytes()[:2], control.read_bytes()[:2]):
        return None  # nothing was found on any picture
    return ap_spread(annotations, found, control, kind)


def _arrays(file: Path | None) -> dict[str, np.ndarray]:
    if file is None:
        return {}
    with np.load(file) as content:
        return {key: content[key] for key in ("pictures", "classes", *_NEEDED) if key in content}


def _fit(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray], metric: str) -> bool:
    """Whether both hold what the metric needs, of the same pictures in the same order."""
    needed = "areas" if metric == "miou_pct" else "guess"
    there = needed in one and needed in other
    return there and np.array_equal(one["pictures"], other["pictures"])


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


def _resampled(values: np.ndarray) -> np.ndarray:
    """Return sums over resampled pictures: (pictures, ...) to (resamples, ...)."""
    count, generator = len(values), np.random.default_rng(0)
    flat, share = values.reshape(len(values), -1), np.full(count, 1 / count)
    sums = [  # in parts: all draws of ImageNet's 50,000 pictures are too much at once
        generator.multinomial(count, share, _RESAMPLES // 10).astype(float) @ flat
        for _ in range(10)
    ]
    return np.concatenate(sums).reshape(_RESAMPLES, *values.shape[1:])


def _spread(differences: np.ndarray, names: np.ndarray, change: np.ndarray) -> ImageSpread:
    low, high = np.percentile(differences, [2.5, 97.5])
    named = zip(names, change, strict=True)
    per_class = {str(name): float(by) for name, by in named if np.isfinite(by)}
    return ImageSpread(float(differences.std(ddof=1)), float(low), float(high), per_class)


def miou_spread(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> ImageSpread:
    """Bootstrap the difference in mIoU, in per cent, of two runs' pixel counts."""
    first, second = one["areas"], other["areas"]
    differences = _miou(_resampled(first)) - _miou(_resampled(second))
    change = 100 * (_iou(first.sum(0)) - _iou(second.sum(0)))
    return _spread(differences, one["classes"], change)


def top1_spread(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> ImageSpread:
    """Bootstrap the difference in top-1, in per cent, of two runs' labels."""
    gain = 1.0 * (one["guess"] == one["truth"]) - (other["guess"] == other["truth"])
    classes = np.arange(len(one["classes"]))
    members = np.bincount(one["truth"], minlength=len(classes))[: len(classes)]
    gains = np.bincount(one["truth"], gain, len(classes))[: len(classes)]
    with np.errstate(invalid="ignore"):
        change = 100 * gains / members
    return _spread(100 * _resampled(gain) / len(gain), one["classes"], change)


def _iou(areas: np.ndarray) -> np.ndarray:
    """IoU by class of hits, truth and prediction (..., 3, classes); NaN for what nobody has."""
    hits, truth, guess = np.moveaxis(areas, -2, 0)
    union = truth + guess - hits
    return np.divide(hits, union, out=np.full(hits.shape, np.nan), where=union > 0)


def _miou(areas: np.ndarray) -> np.ndarray:
    return 100 * np.nanmean(_iou(areas), axis=-1)


_NEEDED = ("areas", "truth", "guess")
_PER_PICTURE = {"miou_pct": miou_spread, "top1_pct": top1_spread}


def typical(spreads: Sequence[ImageSpread]) -> float | None:
    """Return the median standard error over seeds."""
    return float(np.median([s.error for s in spreads])) if spreads else None
