"""How far two predictions for one picture are apart, per task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torchvision.ops import box_iou

#: Objects that count as found; the other prediction may be a little less sure of them.
SURE, LESS_SURE = 0.3, 0.1


def outcome_change(before: Sequence[Any], after: Sequence[Any]) -> dict[str, float | None]:
    """Compare predictions of the same pictures.

    Returns:
        Detection: ``box shift_px`` (median over objects of the mean shift of a box's sides) and
        ``objects lost_pct`` (found before, and nothing of that class overlaps by half after).
        Segmentation: ``pixels changed_pct``. Classification: ``classes changed_pct``.
    """
    pairs = list(zip(before, after, strict=True))
    if not pairs:
        return {}
    if "pred_instances" in before[0]:
        return _boxes(pairs)
    if "pred_sem_seg" in before[0]:
        changed = [(a.pred_sem_seg.data != b.pred_sem_seg.data).float().mean() for a, b in pairs]
        return {"pixels changed_pct": 100 * float(torch.stack(changed).mean())}
    other = [int(a.pred_label) != int(b.pred_label) for a, b in pairs]
    return {"classes changed_pct": 100 * float(np.mean(other))}


def _boxes(pairs: Sequence[tuple[Any, Any]]) -> dict[str, float | None]:
    shifts: list[float] = []
    lost = 0
    for a, b in pairs:
        found = a.pred_instances[a.pred_instances.scores >= SURE]
        there = b.pred_instances[b.pred_instances.scores >= LESS_SURE]
        overlap = box_iou(found.bboxes, there.bboxes)
        overlap = overlap * (found.labels[:, None] == there.labels[None, :])
        for row, box in zip(overlap, found.bboxes, strict=True):
            if not len(row) or row.max() < 0.5:
                lost += 1
            else:
                shifts.append(float((there.bboxes[row.argmax()] - box).abs().mean()))
    total = lost + len(shifts)
    return {
        "box shift_px": float(np.median(shifts)) if shifts else None,
        "objects lost_pct": 100 * lost / total if total else None,
    }
