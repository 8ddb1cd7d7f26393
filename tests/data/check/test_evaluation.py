"""Empty pictures and unlabelled splits: they train, they count, and results are written."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope, init_default_scope

from relpos_mm.data.bdpq import Knobs, make_mini
from relpos_mm.engine import ChanceHook
from relpos_mm.engine.unlabelled import write_results_only

Write = Callable[[Any], Path]
Load = Callable[[str], Config]


def metric(path: Path, **options: Any) -> Any:
    """mmdet's COCO metric with a perfect prediction of both objects of picture 1."""
    from mmdet.evaluation import CocoMetric

    judge = CocoMetric(ann_file=str(path), metric="bbox", **options)
    judge.dataset_meta = {"classes": ("cat", "dog")}
    return judge


def predicted(image_id: int, boxes: list[list[float]], scores: list[float]) -> dict[str, Any]:
    found = {
        "bboxes": torch.tensor(boxes).reshape(-1, 4),
        "scores": torch.tensor(scores),
        "labels": torch.arange(len(scores)),
    }
    return {"img_id": image_id, "ori_shape": (20, 40), "pred_instances": found}


PERFECT = predicted(1, [[2, 2, 12, 12], [20, 5, 30, 15]], [0.5, 0.6])


def test_empty_pictures_count_in_evaluation(content: dict[str, Any], write_coco: Write) -> None:
    """B051, B053: a wrong box on an empty picture costs its class, under the right name."""
    path = write_coco(content)
    scores = []
    for wrong in ([], [[1.0, 1.0, 9.0, 9.0]]):
        judge = metric(path, classwise=True)
        judge.process({}, [PERFECT, predicted(2, wrong, [0.9] * len(wrong))])
        scores.append(judge.evaluate(size=2))
    assert scores[0]["coco/bbox_mAP"] == pytest.approx(1.0)
    assert scores[1]["coco/cat_precision"] == pytest.approx(0.5, abs=0.01)
    assert scores[1]["coco/dog_precision"] == pytest.approx(1.0), "under the right name"


def test_b059_result_file_without_annotations(content: dict[str, Any], write_coco: Write) -> None:
    del content["annotations"]
    path = write_coco(content)
    cfg = Config(
        dict(work_dir=str(path.parent), test_evaluator=dict(type="CocoMetric", ann_file=str(path)))
    )
    prefixes = write_results_only(cfg)
    assert prefixes == [str(path.parent / "predictions")]
    options = {key: cfg.test_evaluator[key] for key in ("format_only", "outfile_prefix")}
    for samples, count in (([PERFECT, predicted(2, [], [])], 2), ([predicted(1, [], [])], 0)):
        judge = metric(path, **options)
        judge.process({}, samples)
        assert judge.evaluate(size=len(samples)) == {}
        results = json.loads(Path(f"{prefixes[0]}.bbox.json").read_text())
        assert [one["image_id"] for one in results] == [1] * count
        assert {one["category_id"] for one in results} <= {3, 7}
    content["annotations"] = []
    path.write_text(json.dumps(content))
    cfg.test_evaluator.format_only = False
    assert write_results_only(cfg) == []


@pytest.mark.parametrize("full", [0, 1])
def test_b053_batches_without_objects_train(load_config: Load, full: int) -> None:
    cfg = load_config("mini/cascade_swin_t_absrel.py")
    init_default_scope("mmdet")
    with DefaultScope.overwrite_default_scope("mmdet"):
        from mmdet.structures import DetDataSample
        from mmdet.structures.mask import BitmapMasks
        from mmengine.structures import InstanceData

        model = MODELS.build(cfg.model)
    batch: dict[str, list[Any]] = {"inputs": [], "data_samples": []}
    for index in range(2):
        count = 1 if index < full else 0
        masks = np.zeros((count, 64, 64), np.uint8)
        masks[:, 8:40, 8:40] = 1
        sample = DetDataSample(metainfo={"img_shape": (64, 64), "batch_input_shape": (64, 64)})
        sample.gt_instances = InstanceData(
            bboxes=torch.tensor([[8.0, 8.0, 40.0, 40.0]] * count).reshape(-1, 4),
            labels=torch.zeros(count, dtype=torch.long),
            masks=BitmapMasks(masks, 64, 64),
        )
        sample.ignored_instances = InstanceData(bboxes=torch.zeros(0, 4))
        batch["inputs"].append(torch.randint(0, 256, (3, 64, 64), dtype=torch.uint8))
        batch["data_samples"].append(sample)
    losses = model(**model.data_preprocessor(batch, training=True), mode="loss")
    assert {f"s{stage}.loss_mask" for stage in range(3)} <= losses.keys()
    total, _ = model.parse_losses(losses)
    assert torch.isfinite(total)
    total.backward()
    unreached = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert unreached == [], "a process with an empty batch would hang the others"


@pytest.mark.parametrize(
    ("metrics", "warned"),
    [({"accuracy/top1": 12.0}, True), ({"accuracy/top1": 60.0}, False), ({"mIoU": 1.0}, False)],
)
def test_b081_a_score_like_guessing_is_hinted_at(
    caplog: pytest.LogCaptureFixture, metrics: dict[str, float], warned: bool
) -> None:
    dataset = SimpleNamespace(metainfo={"classes": tuple("bdpqoxst")})
    logger = logging.getLogger("chance")
    runner = SimpleNamespace(test_dataloader=SimpleNamespace(dataset=dataset), logger=logger)
    ChanceHook().after_test_epoch(runner, metrics)
    assert ("order of the labels" in caplog.text) == warned


@pytest.mark.train
def test_b059_the_test_tool_writes_results_for_unlabelled_pictures(
    load_config: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from relpos_mm.engine.eval_cli import evaluate

    knobs = Knobs(cls_train=8, cls_val=8, train_scenes=1, val_scenes=3)
    make_mini(tmp_path / "data/bdpq", knobs=knobs, workers=1)
    path = tmp_path / "data/bdpq/ann/val.json"
    content = json.loads(path.read_text())
    del content["annotations"]
    path.write_text(json.dumps(content))
    cfg = load_config("mini/cascade_swin_t_relonly.py")
    with DefaultScope.overwrite_default_scope("mmdet"):
        model = MODELS.build(cfg.model)
    meta = {"dataset_meta": {"classes": cfg.letters}}
    torch.save({"state_dict": model.state_dict(), "meta": meta}, tmp_path / "weights.pth")
    monkeypatch.chdir(tmp_path)
    evaluate([cfg.filename, "weights.pth", "--work-dir", "run"])
    assert json.loads((tmp_path / "run/result.json").read_text())["metrics"] == {}
    images = {image["id"] for image in content["images"]}
    for kind in ("bbox", "segm"):
        results = json.loads((tmp_path / f"run/predictions.{kind}.json").read_text())
        assert {one["image_id"] for one in results} <= images
