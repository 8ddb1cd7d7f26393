"""result.json: what a run found, under which protocol, from which inputs."""

from __future__ import annotations

import hashlib
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner

from relpos_mm.data import data_hash

from .facts import bare_model, cpu_gemm_fact, encoding_fact, parameter_fact, uses_tta
from .measuring import (
    loading_share_pct,
    macs_fact,
    peak_memory_mib,
    precision_fact,
    training_rate,
)
from .metric_names import paper_name
from .saving import write_atomically
from .start_report import StartReportHook
from .versions import versions

# Where and how a run is started and what it leaves there, as opposed to what it computes.
_NOT_HASHED = (
    *("work_dir", "launcher", "resume", "model_wrapper_cfg", "collect_device"),
    *("outfile_prefix", "cpu_gemm"),
)


@HOOKS.register_module()
class ResultHook(Hook):
    """Write ``result.json`` into the run directory after training and after a test.

    Training writes the metrics of its last validation. A test in the directory of a training adds
    its metrics under ``tests``, by protocol; in any other directory it writes a record of its own.
    A record of an earlier training in the same directory is renamed, never mixed with the new one.
    """

    # The last hook: what it writes says that everything else has succeeded.
    priority = "LOWEST"
    filename = "result.json"

    def before_run(self, runner: Runner) -> None:
        versions()  # before anyone changes the code under a long run

    def before_train(self, runner: Runner) -> None:
        self._start = time.monotonic()
        self._metrics: dict[str, Any] = {}
        self._validated_at: dict[str, int] | None = None
        old = Path(runner.work_dir) / self.filename
        if is_main_process() and old.is_file() and not runner._resume:
            stamp = time.strftime("%Y%m%d_%H%M%S", time.localtime(old.stat().st_mtime))
            kept = old.rename(old.with_name(f"result_{stamp}.json"))
            runner.logger.info(f"The record of an earlier run is now {kept}")

    def before_test(self, runner: Runner) -> None:
        self._start = time.monotonic()

    def after_val_epoch(self, runner: Runner, metrics: dict[str, Any] | None = None) -> None:
        self._metrics = dict(metrics or {})
        self._validated_at = {"epoch": runner.epoch, "iter": runner.iter}

    def after_train(self, runner: Runner) -> None:
        path = Path(runner.work_dir) / self.filename
        if self._validated_at is None and path.is_file():
            runner.logger.info(f"Nothing was trained or validated; {path} stays as it is")
            return
        record = self._record(runner, "train", self._metrics)
        record["validated_at"] = self._validated_at
        record["checkpoint"] = runner.message_hub.runtime_info.get("last_ckpt")
        self._write(runner, record)

    def after_test_epoch(self, runner: Runner, metrics: dict[str, Any] | None = None) -> None:
        record = self._record(runner, "test", dict(metrics or {}))
        record["checkpoint"] = str(runner._load_from) if runner._load_from else None
        trained = _read(Path(runner.work_dir) / self.filename)
        if trained.get("phase") == "train":
            name = record["protocol"].get("name", "test")
            keys = (
                *("metrics", "protocol", "precision", "cpu_gemm", "cost"),
                *("checkpoint", "config_sha256", "data_sha256", "versions"),
            )
            trained.setdefault("tests", {})[name] = {key: record[key] for key in keys}
            record = trained
        self._write(runner, record)

    def _record(self, runner: Runner, phase: str, metrics: dict[str, Any]) -> dict[str, Any]:
        model = bare_model(runner.model)
        cfg = runner.cfg
        counts, wall = parameter_fact(model), time.monotonic() - self._start
        report = next((h for h in runner.hooks if isinstance(h, StartReportHook)), None)
        # A test draws no random numbers; what counts is the seed behind the weights.
        seed = runner.seed if phase == "train" or report is None else report.trained_seed
        return {
            "phase": phase,
            "task": cfg.get("task"),
            "variant": encoding_fact(model)["slug"],
            "position_transferred": (report.facts or {}).get("position_transferred")
            if report
            else None,
            "seed": seed,
            "metrics": {paper_name(k): finite_or_none(v) for k, v in metrics.items()},
            "protocol": dict(
                cfg.get("tta_protocol" if uses_tta(runner.model) else "protocol") or {}
            ),
            "precision": precision_fact(runner, phase),
            "cpu_gemm": cpu_gemm_fact(runner),
            "cost": {
                "wall_s": round(wall, 1),
                "train_pictures_per_s": training_rate(runner) if phase == "train" else None,
                "train_data_share_pct": loading_share_pct(runner) if phase == "train" else None,
                "peak_memory_mib": peak_memory_mib(),
                "params": counts["total"],
                "params_position": counts["position"],
                "params_position_pct": 100 * counts["position"] / max(counts["total"], 1),
                **(macs_fact(runner) if phase == "train" and is_main_process() else {}),
                "processes": runner.world_size,
                "device": _device(),
            },
            "config": cfg.filename,
            "config_sha256": config_sha256(cfg),
            "config_content": hashed_content(cfg),
            "data_sha256": data_hash(cfg),
            "versions": versions(),
            "start": report.facts if report else None,
        }

    def _write(self, runner: Runner, record: dict[str, Any]) -> None:
        if not is_main_process():
            return
        path = Path(runner.work_dir) / self.filename
        write_atomically(path, (json.dumps(record, indent=2, default=str) + "\n").encode())
        runner.logger.info(f"Result: {record['metrics']} -> {path}")


def finite_or_none(value: Any) -> float | None:
    """Return a metric as a float; None for NaN, infinity and COCO's -1 (nothing to measure)."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and number != -1 else None


def config_sha256(cfg: Config) -> str:
    """Return the hash of the resolved config without the keys that only place a run."""
    content = json.dumps(hashed_content(cfg), sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()


def hashed_content(cfg: Config) -> dict[str, Any]:
    """Return the resolved config as plain values, without the keys that only place a run."""
    return _hashed(cfg.to_dict())


def _hashed(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _hashed(value) for key, value in node.items() if key not in _NOT_HASHED}
    if isinstance(node, (list, tuple)):
        return [_hashed(value) for value in node]
    return node


def _device() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
