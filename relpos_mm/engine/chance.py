"""A hint when a classifier scores no better than chance."""

from __future__ import annotations

from collections.abc import Mapping

from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner

_TOP1 = "accuracy/top1"  # of mmpretrain's Accuracy, in percent


@HOOKS.register_module()
class ChanceHook(Hook):
    """Warn after a test whose top-1 accuracy is below twice that of guessing.

    With trained weights the likeliest reason is a list of labels that numbers the classes in
    another order than the class folders, which costs nothing but the score.
    """

    def after_test_epoch(self, runner: Runner, metrics: Mapping[str, float] | None = None) -> None:
        dataset = runner.test_dataloader.dataset
        classes = len((getattr(dataset, "metainfo", None) or {}).get("classes") or ())
        score = (metrics or {}).get(_TOP1)
        if score is None or classes < 2 or score >= 200 / classes:
            return
        runner.logger.warning(
            f"Top-1 accuracy {score:.2f}% is about that of guessing among {classes} classes "
            f"({100 / classes:.2f}%). If the weights are trained, look at the order of the labels: "
            "python tools/data.py check imagenet PATH"
        )
