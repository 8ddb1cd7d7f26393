"""Evidence of single pictures: what is kept, how small it is, and that it changes no result."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from mmengine.config import Config, ConfigDict
from mmengine.evaluator import Evaluator

from relpos_mm.engine.evidence import SHOWN, EvidenceHook, PictureEvidence, evidence_stem

from .toys import toy_runner

CLASSES = ("ground", "b", "d", "o")


def kept(file: Path, samples: list[dict[str, Any]], **meta: Any) -> dict[str, np.ndarray]:
    metric = PictureEvidence(file)
    metric.dataset_meta = {"classes": CLASSES, **meta}
    for sample in samples:
        metric.process(None, [sample])
    assert metric.evaluate(len(samples)) == {}
    with np.load(file) as content:
        return dict(content)


def scene(name: str, truth: list[int], guess: list[int]) -> dict[str, Any]:
    maps = {"gt_sem_seg": truth, "pred_sem_seg": guess}
    return {"img_path": name} | {key: {"data": torch.tensor([[m]])} for key, m in maps.items()}


def test_segmentation_keeps_areas_and_the_first_label_maps(tmp_path: Path) -> None:
    scenes = [scene("a.png", [0, 1, 1], [0, 1, 2]), scene("b.png", [2, 255, 2], [2, 0, 3])]
    scenes += [scene(f"{n}.png", [0, 0, 7], [0, 1, 1]) for n in range(SHOWN)]
    found = kept(tmp_path / "new" / "e.npz", scenes, palette=[[1, 2, 3]] * 4)
    assert found["pictures"][:2].tolist() == ["a.png", "b.png"]
    assert found["classes"].tolist() == list(CLASSES)
    hits, truth, guess = found["areas"][0]
    assert (hits.tolist(), truth.tolist(), guess.tolist()) == (
        [1, 1, 0, 0],
        [1, 2, 0, 0],
        [1, 1, 1, 0],
    )
    assert found["areas"][1].sum(1).tolist() == [1, 2, 2]  # 255 does not count
    assert found["areas"][2].sum(1).tolist() == [1, 2, 2]  # nor does what is no class
    assert found["guess_1"].tolist() == [[2, 0, 3]]
    assert {key for key in found if key.startswith("truth_")} == {
        f"truth_{n}" for n in range(SHOWN)
    }
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["e.npz"]


def test_classification_keeps_a_label_per_picture(tmp_path: Path) -> None:
    samples = [
        {"img_path": f"{n}.png", "gt_label": torch.tensor([n]), "pred_label": torch.tensor([1])}
        for n in range(3)
    ]
    found = kept(tmp_path / "e.npz", samples)
    assert found["truth"].tolist() == [0, 1, 2]
    assert found["guess"].tolist() == [1, 1, 1]


def test_of_other_tasks_nothing_is_kept(tmp_path: Path) -> None:
    metric = PictureEvidence(tmp_path / "e.npz")
    metric.process(None, [{"pred_instances": {}}])
    assert metric.evaluate(1) == {}
    assert list(tmp_path.iterdir()) == []


def test_ade20k_needs_less_than_a_megabyte(tmp_path: Path) -> None:
    """2000 pictures of 150 classes, a dozen of which are in a picture or found there."""
    generator = np.random.default_rng(0)
    metric = PictureEvidence(tmp_path / "e.npz")
    metric.dataset_meta = {
        "classes": [f"class {n}" for n in range(150)],
        "palette": [[0, 0, 0]] * 150,
    }
    rows = []
    for number in range(2000):
        areas = np.zeros((3, 150), np.int32)
        areas[:, generator.choice(150, 12, replace=False)] = generator.integers(1, 200_000, (3, 12))
        rows.append({"picture": f"images/validation/ADE_val_{number:08}.jpg", "areas": areas})
    for row in rows[:SHOWN]:
        noise = generator.integers(0, 150, (64, 86)).astype(np.uint8)
        row["maps"] = (noise.repeat(8, 0).repeat(8, 1),) * 2
    metric.compute_metrics(rows)
    assert (tmp_path / "e.npz").stat().st_size < 2**20


def test_coco_metrics_write_their_predictions(tmp_path: Path) -> None:
    data = ConfigDict(data_root="data/x", data_prefix={"img": "val/"}, ann_file="ann/val.json")
    cfg = Config({"val_dataloader": {"dataset": {"dataset": data}}, "protocol": {"name": "a b/c"}})
    runner = SimpleNamespace(work_dir=str(tmp_path), cfg=cfg, model=torch.nn.Identity())
    evaluator = runner.val_evaluator = Evaluator([])
    evaluator.metrics = [SimpleNamespace(outfile_prefix=None)]
    EvidenceHook().before_val(runner)
    assert evaluator.metrics[0].outfile_prefix == str(tmp_path / "evidence-a_b_c")
    assert json.loads((tmp_path / "evidence-a_b_c.coco.json").read_text()) == {
        "ann_file": "data/x/ann/val.json",
        "images": "data/x/val",
    }


def test_the_hook_adds_one_metric_and_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"picture": "toy"}  # the toy's samples are no dicts
    monkeypatch.setattr(PictureEvidence, "process", lambda self, *_: self.results.append(row))
    hooks = [{"type": "StartReportHook"}, {"type": "ResultHook"}]
    runner = toy_runner(tmp_path, custom_hooks=hooks, cfg={"task": "classification"})
    runner.register_hook(EvidenceHook())
    runner.train()
    kinds = [type(metric).__name__ for metric in runner.val_evaluator.metrics]
    assert kinds == ["ToyMetric", "PictureEvidence"]  # once, in two validations
    metrics = json.loads((tmp_path / "result.json").read_text())["metrics"]
    assert set(metrics) == {"top1_pct", "box_ap_s", "mask_ap"}


def test_stems_are_names_of_files() -> None:
    assert evidence_stem({"name": "ade20k-val multi/scale"}) == "evidence-ade20k-val_multi_scale"
    assert evidence_stem({}) == "evidence-unnamed"
