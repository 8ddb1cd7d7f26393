"""What result.json says of a run's use of time, memory and numbers."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from relpos_mm.engine.measuring import macs_fact

from .toys import log_of, toy_runner

HOOKS = [{"type": "StartReportHook"}, {"type": "ResultHook"}]


def test_result_holds_use_precision_and_the_text_behind_the_hash(tmp_path: Path) -> None:
    runner = toy_runner(tmp_path, custom_hooks=HOOKS, cfg={"task": "classification"})
    runner.train()
    found = json.loads((tmp_path / "result.json").read_text())
    assert found["precision"] == {"training": "float32", "evaluation": "float32"}
    seconds = runner.message_hub.get_scalar("train/time").mean()
    assert abs(found["cost"]["train_pictures_per_s"] - 2 / seconds) < 0.01
    waited = runner.message_hub.get_scalar("train/data_time").mean()
    assert 0 < found["cost"]["train_data_share_pct"] < 100
    assert abs(found["cost"]["train_data_share_pct"] - 100 * waited / seconds) < 0.1
    assert found["cost"]["peak_memory_mib"] > 50  # torch alone needs more
    share = 100 * found["cost"]["params_position"] / found["cost"]["params"]
    assert found["cost"]["params_position_pct"] == share > 0
    text = json.dumps(found["config_content"], sort_keys=True, default=str)
    assert hashlib.sha256(text.encode()).hexdigest() == found["config_sha256"]
    assert "work_dir" not in found["config_content"]


def test_a_test_measures_no_training(tmp_path: Path) -> None:
    toy_runner(tmp_path / "a", custom_hooks=HOOKS).train()
    checkpoint = str(tmp_path / "a" / "epoch_2.pth")
    toy_runner(tmp_path / "b", custom_hooks=HOOKS, load_from=checkpoint).test()
    found = json.loads((tmp_path / "b" / "result.json").read_text())
    assert found["precision"] == {"training": None, "evaluation": "float32"}
    assert found["cost"]["train_pictures_per_s"] is None
    assert found["cost"]["train_data_share_pct"] is None


def test_the_share_of_multiply_adds_is_counted(tmp_path: Path) -> None:
    swin = {"type": "RelPosSwin", "position": [{"type": "ShawRelative", "clip": 3}]}
    cfg = {"task": "segmentation", "protocol": {"scales": [[48, 32]]}, "model": swin}
    found = macs_fact(toy_runner(tmp_path, cfg=cfg))
    assert found["gmac_picture"] == [48, 48]  # no larger than the protocol's
    assert 0 < found["gmac_position"] < found["gmac"]
    assert found["gmac_position_pct"] == 100 * found["gmac_position"] / found["gmac"]


def test_a_training_does_not_fail_for_what_cannot_be_counted(tmp_path: Path) -> None:
    runner = toy_runner(tmp_path, custom_hooks=HOOKS, cfg={"model": {"type": "NoSuchModel"}})
    runner.train()
    cost = json.loads((tmp_path / "result.json").read_text())["cost"]
    assert cost["params"] > 0
    assert "gmac" not in cost
    assert "multiply-adds were not counted" in log_of(runner)
