"""The leaves beyond Table 4: complete, what they claim to be, and able to learn in every host."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from relpos_mm.encodings import position_modules, position_slug
from relpos_mm.models import RelPosSwin

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
POSITIONS = runpy.run_path(str(CONFIGS / "_base_" / "positions.py"))["positions"]
SWIN_T = runpy.run_path(str(CONFIGS / "_base_" / "swin_t.py"))["swin_t"]
MINI = runpy.run_path(str(CONFIGS / "mini" / "_base_" / "bdpq.py"))["mini_swin"]

# Position parameters of Swin-T: formula times channels or heads (96 to 768, 3 to 24) and blocks.
PARAMETERS = {
    "sin2d": 0,
    "abswin": (7 * 7 + 14 * 14) * 96,
    "logcpb": 89_226,  # with 138 temperatures
    "dpb": 24_234,
    "decomposed": 12 * 2 * 13 * 32,
    "rope_axial": 0,
    "rope_mixed": 4_416,
    "peg": 10 * (96 + 192 + 384 + 768),
    "lepe": 10 * (2 * 96 + 2 * 192 + 6 * 384 + 2 * 768),
    "irpe_k": 12 * 49 * 32,
    "irpe_qkv": 3 * 12 * 49 * 32,
    "shaw": 12 * 49 * 32,
    "lookhere": 0,
    "biasonly": 169 * (2 * 3 + 2 * 6 + 6 * 12 + 2 * 24),
}


def swin(base: dict[str, Any], slug: str, **more: Any) -> RelPosSwin:
    arguments = {key: value for key, value in base.items() if key != "type"}
    return RelPosSwin(**arguments, position=POSITIONS[slug], **more)


@pytest.mark.parametrize("slug", POSITIONS)
def test_every_encoding_has_a_leaf_per_task_and_size(slug: str) -> None:
    assert position_slug(POSITIONS[slug]) == slug
    line = f"model = dict(backbone=dict(position=_base_.positions.{slug}))"
    for folder in (CONFIGS, CONFIGS / "mini"):
        for task in ("cascade", "upernet", "cls"):
            text = (folder / f"{task}_swin_t_{slug}.py").read_text()
            assert text.splitlines()[2:] == [f'_base_ = "./_base_/{task}_swin_t.py"', "", line]


@pytest.mark.parametrize("slug", PARAMETERS)
def test_position_parameters_of_swin_t(slug: str) -> None:
    with torch.device("meta"):
        model = swin(SWIN_T, slug)
    position = {p for module in position_modules(model).values() for p in module.parameters()}
    assert sum(parameter.numel() for parameter in position) == PARAMETERS[slug]


@pytest.mark.parametrize("small_map", ["pad", "shrink"])
@pytest.mark.parametrize("slug", POSITIONS)
def test_every_parameter_learns(slug: str, small_map: str) -> None:
    """One step forward and back; without it distributed training would wait for gradients."""
    torch.manual_seed(0)
    model = swin(MINI, slug, small_map=small_map)
    picture = torch.randn(2, 3, 48, 48) if small_map == "shrink" else torch.randn(1, 3, 70, 52)
    outputs = model(picture)
    sum(out.square().sum() for out in outputs).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
