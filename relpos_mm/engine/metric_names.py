"""Metric names as papers print them.

Names that end in ``_pct`` are percentages; COCO's average precisions are fractions, as COCO's own
evaluation gives them (0.463, printed as 46.3 in papers).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_FIXED = {
    "accuracy/top1": "top1_pct",
    "accuracy/top5": "top5_pct",
    "mIoU": "miou_pct",
    "mAcc": "macc_pct",
    "aAcc": "aacc_pct",
}
_COCO = re.compile(r"coco/(bbox|segm)_mAP(?:_(\w+))?")
_KIND = {"bbox": "box", "segm": "mask"}


def paper_name(name: str) -> str:
    """Return the printed name of a library's metric; an unknown one stays as it is.

    >>> paper_name("coco/segm_mAP_75")
    'mask_ap75'
    >>> paper_name("coco/bbox_mAP_s")
    'box_ap_s'
    """
    if name in _FIXED:
        return _FIXED[name]
    found = _COCO.fullmatch(name)
    if not found:
        return name
    kind, part = found.groups()
    suffix = "" if part is None else part if part.isdigit() else f"_{part}"
    return f"{_KIND[kind]}_ap{suffix}"


def promised_names(evaluator: Any) -> set[str] | None:
    """Return the names of what a config's evaluator will report; None where that is unknown.

    Args:
        evaluator: ``val_evaluator`` of a config: a dictionary or a list of them.

    >>> sorted(promised_names(dict(type="Accuracy", topk=(1, 5))))
    ['top1_pct', 'top5_pct']
    """
    names: set[str] = set()
    for one in [evaluator] if isinstance(evaluator, Mapping) else evaluator or [{}]:
        own = _own_names(one)
        if own is None or one.get("prefix"):
            return None
        names |= {paper_name(name) for name in own}
    return names


def _own_names(evaluator: Mapping[str, Any]) -> set[str] | None:
    kind = str(evaluator.get("type")).split(".")[-1]
    if kind == "Accuracy" and not evaluator.get("thrs"):
        return {f"accuracy/top{k}" for k in _listed(evaluator.get("topk", 1))}
    if kind == "IoUMetric" and _listed(evaluator.get("iou_metrics", "mIoU")) == ["mIoU"]:
        return {"mIoU", "mAcc", "aAcc"}
    if kind == "ClassGroups":
        groups = {f"{group}_miou_pct" for group in evaluator.get("miou", ())}
        return groups | {f"{group}_acc_pct" for group in evaluator.get("choice", ())}
    known = {"type", "ann_file", "metric", "format_only", "backend_args"}
    kinds = _listed(evaluator.get("metric", "bbox"))
    if kind == "CocoMetric" and set(evaluator) <= known and set(kinds) <= set(_KIND):
        parts = ("", "_50", "_75", "_s", "_m", "_l")
        return {f"coco/{each}_mAP{part}" for each in kinds for part in parts}
    return None


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
