"""Segmentation metrics over named groups of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from mmengine.evaluator import BaseMetric
from mmengine.registry import METRICS


@METRICS.register_module()
class ClassGroups(BaseMetric):
    """What one mean over all classes hides: IoU of a group, and choices within a group.

    Reports `{group}_miou_pct`, the mean IoU of the classes of a group, and `{group}_acc_pct`: among
    pixels of a group's classes that were also given one of them, the share that was given the right
    one (chance: 100 / classes). A group that the truth never shows is reported as NaN.

    Args:
        miou: Class names by group, for `{group}_miou_pct`.
        choice: Class names by group, for `{group}_acc_pct`.
        ignore_index: Truth that does not count.
        collect_device: See `mmengine.evaluator.BaseMetric`.
        prefix: See `mmengine.evaluator.BaseMetric`.

    Raises:
        ValueError: at the first evaluation, for a name that the data set does not have.
    """

    def __init__(
        self,
        miou: Mapping[str, Sequence[str]],
        choice: Mapping[str, Sequence[str]],
        ignore_index: int = 255,
        collect_device: str = "cpu",
        prefix: str | None = None,
    ) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix)
        self.miou, self.choice, self.ignore_index = dict(miou), dict(choice), ignore_index

    def process(self, data_batch: Any, data_samples: Sequence[dict[str, Any]]) -> None:
        """Counts the pixels of each picture by (truth, prediction)."""
        classes = len(self._classes)
        for sample in data_samples:
            truth = sample["gt_sem_seg"]["data"].cpu().numpy().ravel().astype(np.int64)
            guess = sample["pred_sem_seg"]["data"].cpu().numpy().ravel().astype(np.int64)
            known = truth != self.ignore_index
            pairs = truth[known] * classes + guess[known]
            self.results.append(np.bincount(pairs, minlength=classes**2).reshape(classes, classes))

    def compute_metrics(self, results: list[np.ndarray]) -> dict[str, float]:
        """Metrics of the summed counts."""
        counts = np.sum(results, axis=0)  # (truth, prediction)
        hits = counts.diagonal()
        union = counts.sum(0) + counts.sum(1) - hits
        with np.errstate(invalid="ignore"):
            iou = np.where(counts.sum(1) > 0, hits / union, np.nan)
        metrics = {}
        for group, names in self.miou.items():
            shown = iou[self._indices(names)]
            shown = shown[~np.isnan(shown)]
            metrics[f"{group}_miou_pct"] = 100 * float(shown.mean()) if shown.size else float("nan")
        for group, names in self.choice.items():
            chosen = counts[np.ix_(self._indices(names), self._indices(names))]
            total = chosen.sum()
            metrics[f"{group}_acc_pct"] = (
                100 * float(chosen.trace() / total) if total else float("nan")
            )
        return metrics

    @property
    def _classes(self) -> list[str]:
        assert self.dataset_meta is not None, "the evaluator sets it before the first picture"
        return list(self.dataset_meta["classes"])

    def _indices(self, names: Sequence[str]) -> list[int]:
        unknown = [name for name in names if name not in self._classes]
        if unknown:
            raise ValueError(f"ClassGroups: {unknown} are no classes of the data: {self._classes}")
        return [self._classes.index(name) for name in names]
