"""A study and its result files without any training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relpos_mm.study.cell import Cell, Step
from relpos_mm.study.spec import Study, parse_study

PROTOCOL = {"name": "toy-val", "scales": [[8, 8]], "flip": False}
VARIANTS = ("noenc", "absonly", "absrel", "relonly")


def toy_study(root: Path, monkeypatch: Any, **changes: Any) -> Study:
    """Return a study of two tasks whose folder lies in ``root``."""
    content = {
        "title": "A toy",
        "level": "mechanism",
        "paper": "swin_table4",
        "variants": list(VARIANTS),
        "seeds": [1, 2, 3, 4, 5, 6],
        "tasks": {
            "classification": {"config": "c_{variant}.py", "metrics": ["top1_pct"], "hours": 0.5},
            "detection": {
                "config": "d_{variant}.py",
                "start": "classification",
                "metrics": ["box_ap", "mask_ap"],
                "hours": 1.0,
            },
        },
        "questions": {
            "absolute alone": ["absonly - noenc"],
            "absolute on top": ["absrel - relonly"],
        },
    }
    monkeypatch.setattr("relpos_mm.study.spec.ROOT", root)
    return parse_study("toy", {**content, **changes})


def write_result(
    folder: Path,
    task: str,
    variant: str,
    seed: int,
    metrics: Mapping[str, Any],
    protocol: Mapping[str, Any] = PROTOCOL,
    study: str | None = "toy",
    **more: Any,
) -> Path:
    """Write a cell's ``result.json`` and ``curve.json``; without ``study`` as a lone training's."""
    content: dict[str, Any] = {
        "phase": "train",
        "task": task,
        "variant": variant,
        "seed": seed,
        "metrics": dict(metrics),
        "protocol": dict(protocol),
        "precision": {"training": "float32", "evaluation": "float32"},
        "cost": {"wall_s": 60.0, "params": 1000, "params_position": 10, "device": "cpu"},
        "config_content": {"model": {"backbone": {"position": [variant]}}, "load_from": None},
        "validated_at": {"epoch": 0, "iter": 10},
        "data_sha256": "d" * 64,
        "versions": {"torch": "2.14.1"},
        **more,
    }
    name = f"{task}-{variant}-s{seed}"
    if study is not None:
        keys = {"task": task, "variant": variant, "seed": seed, "world": "", "wall_s": 90.0}
        content["cell"] = {"id": name, "study": study, **keys, **content.pop("cell_more", {})}
    path = folder / name / "result.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    rows = [{"loss": 2.0 / step, "step": step} for step in (1, 2, 3)]
    (path.parent / "curve.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def whole_study(study: Study) -> None:
    """Write results in which the absolute term helps classification and hurts detection."""
    gain = {"noenc": 0.0, "absonly": 4.0, "absrel": 6.0, "relonly": 6.0}
    loss = {"noenc": 0.0, "absonly": -0.03, "absrel": 0.05, "relonly": 0.05}
    for at, variant in enumerate(VARIANTS):
        for seed in study.seeds:
            wobble = ((seed * (at + 3)) % 5) / 10
            top1 = 80 + gain[variant] + wobble
            ap = 0.4 + loss[variant] + wobble / 100
            write_result(study.folder, "classification", variant, seed, {"top1_pct": top1})
            metrics = {"box_ap": ap, "mask_ap": ap - 0.1, "box_ap_s": ap, "box_ap_l": None}
            write_result(study.folder, "detection", variant, seed, metrics)


def toy_cells(study: Study) -> list[Cell]:
    """Return the cells whose results ``write_result`` writes."""
    return [
        Cell(
            id=f"{task}-{variant}-s{seed}",
            study=study.name,
            task=task,
            variant=variant,
            seed=seed,
            world="",
            needs=(),
            folder=str(study.folder / f"{task}-{variant}-s{seed}"),
            steps=(Step("train", ()),),
        )
        for task in study.tasks
        for variant in study.variants
        for seed in study.seeds
    ]
