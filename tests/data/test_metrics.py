"""ClassGroups against counts done by hand."""

import numpy as np
import pytest
import torch
from mmengine.evaluator import Evaluator
from mmengine.registry import METRICS

from relpos_mm.data import ClassGroups


def evaluate(
    metric: ClassGroups, truth: list[list[int]], guess: list[list[int]]
) -> dict[str, float]:
    metric.dataset_meta = {"classes": ("ground", "b", "d", "o")}
    samples = [
        {"gt_sem_seg": {"data": torch.tensor([t])}, "pred_sem_seg": {"data": torch.tensor([g])}}
        for t, g in zip(truth, guess, strict=True)
    ]
    for sample in samples:
        metric.process(None, [sample])
    return metric.evaluate(len(samples))


def test_groups_by_hand() -> None:
    metric = ClassGroups(miou={"things": ["b", "d", "o"]}, choice={"chiral": ["b", "d"]})
    truth = [[0, 1, 1, 1], [1, 2, 2, 255]]
    guess = [[1, 1, 2, 0], [3, 2, 1, 2]]
    found = evaluate(metric, truth, guess)
    # b: 1 hit of 4 true + 2 wrong guesses; d: 1 of 2 true + 1 wrong guess; o is never true.
    assert found["things_miou_pct"] == pytest.approx(100 * (1 / 6 + 1 / 3) / 2)
    assert found["chiral_acc_pct"] == pytest.approx(100 * 2 / 4)


def test_absent_groups_are_nan_and_unknown_names_refused() -> None:
    metric = ClassGroups(miou={"things": ["o"]}, choice={"chiral": ["b", "d"]})
    found = evaluate(metric, [[0, 0]], [[0, 1]])
    assert all(np.isnan(value) for value in found.values())
    with pytest.raises(ValueError, match=r"\['q'\] are no classes"):
        evaluate(ClassGroups(miou={"things": ["q"]}, choice={}), [[0]], [[0]])


def test_libraries_find_it_by_name() -> None:
    built = Evaluator([{"type": "ClassGroups", "miou": {}, "choice": {}}])
    assert isinstance(built.metrics[0], ClassGroups)
    assert METRICS.get("ClassGroups") is ClassGroups
