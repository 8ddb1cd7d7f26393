"""What a bootstrap over pictures and a page of sample pictures need, kept beside ``result.json``.

COCO's metric writes its predictions itself; of segmentation the pixel counts of each picture are
kept and the label maps of the first few, of classification the labels.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dist import is_main_process
from mmengine.evaluator import BaseMetric, Evaluator
from mmengine.hooks import Hook
from mmengine.runner import Runner

from relpos_mm.data.check.from_config import evaluators

from .facts import uses_tta
from .saving import write_atomically

SHOWN = 4  # pictures whose label maps are kept


def evidence_stem(protocol: Mapping[str, Any]) -> str:
    """Return how the files of a protocol begin: ``evidence-NAME``."""
    return "evidence-" + re.sub(r"[^\w.-]", "_", str(protocol.get("name", "unnamed")))


class EvidenceHook(Hook):
    """Keep evidence of every validation and test in the run directory; the last one stays."""

    def before_val(self, runner: Runner) -> None:
        self._keep(runner, runner.val_evaluator, "val")

    def before_test(self, runner: Runner) -> None:
        self._keep(runner, runner.test_evaluator, "test")

    def _keep(self, runner: Runner, evaluator: Evaluator, part: str) -> None:
        if any(isinstance(metric, PictureEvidence) for metric in evaluator.metrics):
            return
        key = "tta_protocol" if uses_tta(runner.model) else "protocol"
        stem = Path(runner.work_dir) / evidence_stem(runner.cfg.get(key) or {})
        by_coco = [metric for metric in evaluator.metrics if hasattr(metric, "outfile_prefix")]
        for metric in by_coco:
            metric.outfile_prefix = str(stem)
        if by_coco and is_main_process():
            source = _source(runner.cfg, part)
            write_atomically(f"{stem}.coco.json", json.dumps(source).encode())
        if not by_coco:
            device = evaluator.metrics[0].collect_device
            kept = PictureEvidence(stem.with_name(f"{stem.name}.npz"), collect_device=device)
            kept.dataset_meta = evaluator.dataset_meta
            evaluator.metrics.append(kept)


def _source(cfg: Config, part: str) -> dict[str, str]:
    """Return where COCO's annotations and pictures of a part lie."""
    named = [each.get("ann_file") for each in evaluators(cfg, part)]
    data = cfg[f"{part}_dataloader"].dataset
    while "dataset" in data:
        data = data.dataset
    prefix = str((data.get("data_prefix") or {}).get("img", ""))
    root = Path(data.get("data_root") or "")
    annotations = next(filter(None, named), None) or root / str(data.get("ann_file", ""))
    return {"ann_file": str(annotations), "images": str(root / prefix)}


class PictureEvidence(BaseMetric):
    """A metric that measures nothing and writes an ``.npz`` instead.

    Always in it: ``pictures`` (paths) and ``classes``. Segmentation adds ``areas`` (pictures, 3,
    classes), pixels that were hit, that are true and that were predicted; ``palette``; and
    ``truth_I`` and ``guess_I``, the label maps of the first :data:`SHOWN` pictures. Classification
    adds ``truth`` and ``guess``, a label per picture. Of other tasks nothing is kept.

    Args:
        file: Where to.
        ignore_index: Truth that does not count.
        collect_device: See `mmengine.evaluator.BaseMetric`.
    """

    default_prefix = "evidence"  # mmengine warns of metrics without one

    def __init__(self, file: Path, ignore_index: int = 255, collect_device: str = "cpu") -> None:
        super().__init__(collect_device=collect_device)
        self.file, self.ignore_index = file, ignore_index

    def process(self, data_batch: Any, data_samples: Sequence[dict[str, Any]]) -> None:
        """Reduce each picture to a few numbers."""
        for sample in data_samples:
            row: dict[str, Any] = {"picture": str(sample.get("img_path", ""))}
            if sample.keys() >= set(_MAPS):
                row |= self._pixels(*(_plain(sample[key]["data"]) for key in _MAPS))
            elif sample.keys() >= set(_LABELS.values()) and sample["gt_label"].numel() == 1:
                row |= {key: int(sample[name]) for key, name in _LABELS.items()}
            self.results.append(row)

    def _pixels(self, truth: np.ndarray, guess: np.ndarray) -> dict[str, Any]:
        classes = len(self._meta["classes"])
        known = (truth != self.ignore_index) & (truth < classes)
        parts = (truth[known & (truth == guess)], truth[known], guess[known])
        areas = np.stack([np.bincount(part, minlength=classes) for part in parts])
        row: dict[str, Any] = {"areas": areas.astype(np.int32)}
        # Of every process, so the first pictures are among them; more classes need wider numbers.
        if len(self.results) < SHOWN and classes <= 255:
            row |= {"maps": (truth.astype(np.uint8), guess.astype(np.uint8))}
        return row

    def compute_metrics(self, results: list[dict[str, Any]]) -> dict[str, float]:
        """Write the file; there is no metric."""
        arrays: dict[str, Any] = {
            "pictures": np.array([row["picture"] for row in results]),
            "classes": np.array([str(name) for name in self._meta.get("classes", ())]),
        }
        if all("areas" in row for row in results):
            arrays["areas"] = np.stack([row["areas"] for row in results])
            arrays["palette"] = np.array(self._meta.get("palette") or [], np.uint8)
            for at, row in enumerate(results[:SHOWN]):
                if "maps" in row:
                    arrays[f"truth_{at}"], arrays[f"guess_{at}"] = row["maps"]
        elif all("guess" in row for row in results):
            for key in _LABELS:
                arrays[key] = np.array([row[key] for row in results], np.int32)
        else:
            return {}
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)
        write_atomically(self.file, buffer.getvalue())
        return {}

    @property
    def _meta(self) -> dict[str, Any]:
        return self.dataset_meta or {}


_MAPS = ("gt_sem_seg", "pred_sem_seg")
_LABELS = {"truth": "gt_label", "guess": "pred_label"}


def _plain(labels: torch.Tensor) -> np.ndarray:
    return labels.squeeze(0).cpu().numpy().astype(np.int64)
