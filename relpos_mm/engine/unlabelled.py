"""Test data without annotations: predictions are written, and no score is made up."""

from __future__ import annotations

from pathlib import Path

from mmengine.config import Config
from mmengine.logging import print_log

from relpos_mm.data.check.from_config import evaluators


def write_results_only(cfg: Config) -> list[str]:
    """Switch COCO evaluators whose file has no ``annotations`` to writing result files.

    Returns:
        The prefixes of the files to come, such as ``work_dirs/x/predictions``; mmdet adds
        ``.bbox.json`` and ``.segm.json``.
    """
    prefixes = []
    for evaluator in evaluators(cfg, "test"):
        path = Path(str(evaluator.get("ann_file") or ""))
        if str(evaluator.get("type", "")).rpartition(".")[2] != "CocoMetric" or not path.is_file():
            continue
        if b'"annotations"' in path.read_bytes():
            continue
        evaluator["format_only"] = True
        prefix = evaluator.get("outfile_prefix") or str(Path(cfg.work_dir) / "predictions")
        evaluator["outfile_prefix"] = prefix
        prefixes.append(prefix)
        print_log(
            f"{path} has no annotations: predictions go to {prefix}.*.json, nothing is scored",
            logger="current",
        )
    return prefixes
