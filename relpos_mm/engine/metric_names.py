"""Metric names as papers print them.

Names that end in ``_pct`` are percentages; COCO's average precisions are fractions, as COCO's own
evaluation gives them (0.463, printed as 46.3 in papers).
"""

from __future__ import annotations

import re

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
