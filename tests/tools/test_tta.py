"""Test-time augmentation: the pipeline of the config, its protocol beside the result."""

from __future__ import annotations

import pytest
import torch
from mmengine.registry import MODELS, init_default_scope

from relpos_mm.engine.cli import load_config

from .conftest import Workspace

CONFIG = """
_base_ = "./configs/mini/upernet_swin_t_relonly.py"
tta_model = dict(type="SegTTAModel")
tta_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(
        type="TestTimeAug",
        transforms=[
            [dict(type="Resize", scale=side, keep_ratio=True) for side in ((64, 64), (128, 128))],
            [dict(type="RandomFlip", prob=p, direction="horizontal") for p in (0.0, 1.0)],
            [dict(type="LoadAnnotations")],
            [dict(type="PackSegInputs")],
        ],
    ),
]
tta_protocol = dict(name="two-scales-flip", scales=[(64, 64), (128, 128)], flip=True)
"""


@pytest.mark.train
def test_augmented_test_is_recorded_under_its_own_protocol(in_workspace: Workspace) -> None:
    path = in_workspace.path / "tta.py"
    path.write_text(CONFIG)
    cfg = load_config(str(path))
    init_default_scope(cfg.default_scope)
    torch.save({"state_dict": MODELS.build(cfg.model).state_dict()}, "weights.pth")
    in_workspace.ok("test.py", "tta.py", "weights.pth", "--tta", "--work-dir", "t")
    result = in_workspace.result("t")
    assert result["protocol"]["name"] == "two-scales-flip"
    assert result["protocol"]["flip"] is True
    assert 0 <= result["metrics"]["miou_pct"] <= 100
