"""result.json: complete, named as in papers, whole at any moment, never of another run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mmengine.config import Config

from relpos_mm.engine import UserError
from relpos_mm.engine.metric_names import paper_name
from relpos_mm.engine.result import config_sha256, finite_or_none

from .toys import log_of, toy_runner

HOOKS = [{"type": "StartReportHook"}, {"type": "NonFiniteLossHook"}, {"type": "ResultHook"}]
CFG = {"task": "classification", "protocol": {"name": "toy", "flip": False}}


def run(folder: Path, **changes: Any) -> Any:
    return toy_runner(folder, custom_hooks=HOOKS, cfg={**CFG}, **changes)


def record(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "result.json").read_text())


def test_training_writes_the_last_validation(tmp_path: Path) -> None:
    runner = run(tmp_path)
    runner.train()
    found = record(tmp_path)
    assert found["phase"] == "train"
    assert found["task"] == "classification"
    assert found["variant"] == "relonly"
    assert found["seed"] == 3
    assert found["protocol"] == CFG["protocol"]
    assert set(found["metrics"]) == {"top1_pct", "box_ap_s", "mask_ap"}
    assert found["metrics"]["box_ap_s"] is None  # COCO's -1
    assert found["metrics"]["mask_ap"] is None  # NaN
    assert 0 <= found["metrics"]["top1_pct"] <= 100
    assert found["validated_at"] == {"epoch": 2, "iter": 8}
    assert found["checkpoint"].endswith("epoch_2.pth")
    assert found["cost"]["params"] == sum(p.numel() for p in runner.model.parameters())
    assert found["cost"]["params_position"] == 27
    assert found["versions"]["torch"]
    assert len(found["config_sha256"]) == 64
    assert found["start"]["batch"]["effective"] == 2


def test_a_test_gives_the_same_metrics_and_the_seed_of_the_weights(tmp_path: Path) -> None:
    run(tmp_path / "a").train()
    checkpoint = str(tmp_path / "a" / "epoch_2.pth")
    run(tmp_path / "b", load_from=checkpoint, randomness={"seed": 77}).test()
    trained, tested = record(tmp_path / "a"), record(tmp_path / "b")
    assert tested["phase"] == "test"
    assert tested["metrics"] == trained["metrics"]
    assert tested["seed"] == 3
    assert tested["checkpoint"] == checkpoint


def test_a_test_in_the_training_directory_adds_to_its_record(tmp_path: Path) -> None:
    run(tmp_path).train()
    before = record(tmp_path)
    run(tmp_path, load_from=str(tmp_path / "epoch_1.pth")).test()
    after = record(tmp_path)
    added = after.pop("tests")
    assert after == before
    assert added["toy"]["checkpoint"].endswith("epoch_1.pth")
    assert set(added["toy"]["metrics"]) == set(before["metrics"])
    assert added["toy"]["versions"] == before["versions"]


def test_a_second_training_keeps_the_first_record_aside(tmp_path: Path) -> None:
    run(tmp_path).train()
    first = record(tmp_path)
    runner = run(tmp_path, model={"type": "ToyModel", "poison_at": 2})
    with pytest.raises(UserError):
        runner.train()
    assert not (tmp_path / "result.json").exists()  # the failed run has no result
    (kept,) = tmp_path.glob("result_*.json")
    assert json.loads(kept.read_text()) == first
    assert kept.name in log_of(runner)


def test_resuming_a_finished_training_changes_nothing(tmp_path: Path) -> None:
    run(tmp_path).train()
    before = (tmp_path / "result.json").read_bytes()
    run(tmp_path, resume=True, load_from=str(tmp_path / "epoch_2.pth")).train()
    assert (tmp_path / "result.json").read_bytes() == before


@pytest.mark.parametrize(
    ("library", "printed"),
    [
        ("coco/bbox_mAP", "box_ap"),
        ("coco/bbox_mAP_50", "box_ap50"),
        ("coco/segm_mAP_l", "mask_ap_l"),
        ("accuracy/top1", "top1_pct"),
        ("mIoU", "miou_pct"),
        ("my/metric", "my/metric"),
    ],
)
def test_metric_names(library: str, printed: str) -> None:
    assert paper_name(library) == printed


@pytest.mark.parametrize(
    ("value", "kept"),
    [(0.25, 0.25), (-1, None), (float("nan"), None), (float("inf"), None), ("x", None)],
)
def test_what_is_no_number_becomes_null(value: Any, kept: float | None) -> None:
    assert finite_or_none(value) == kept


def test_the_config_hash_tells_runs_apart_by_content_alone() -> None:
    one = Config({"model": {"depth": 1}, "work_dir": "a"})
    assert config_sha256(one) == config_sha256(Config({"work_dir": "b", "model": {"depth": 1}}))
    assert config_sha256(one) != config_sha256(Config({"work_dir": "a", "model": {"depth": 2}}))
