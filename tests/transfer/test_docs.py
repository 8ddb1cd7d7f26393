"""Every command of docs/transfer.md runs, on small files and the mini configs of those names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from mmengine.config import Config

from relpos_mm.models import RelPosSwin
from relpos_mm.transfer import convert

from .test_cli import tool  # noqa: F401  the fixture
from .test_networks import state_of

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = [
    shlex.split(line)[2:]
    for line in (ROOT / "docs" / "transfer.md").read_text().splitlines()
    if line.startswith("python tools/transfer.py ")
]


@cache
def mini_backbone(leaf: str) -> dict[str, Any]:
    """Arguments of the backbone of a mini config."""
    backbone = Config.fromfile(ROOT / "configs" / "mini" / leaf).model.backbone.to_dict()
    return {key: value for key, value in backbone.items() if key != "type"}


def mini(leaf: str, **changes: Any) -> dict[str, torch.Tensor]:
    """State of the backbone of a mini config."""
    backbone = mini_backbone(leaf)
    return RelPosSwin(**(backbone | changes)).state_dict()


def official(leaf: str, **changes: Any) -> dict[str, Any]:
    state = convert(mini(leaf, **changes), target="official")
    head = {"head.weight": torch.zeros(8, 192), "head.bias": torch.zeros(8)}
    return {"model": state | head}


def own(leaf: str, *parts: str) -> dict[str, Any]:
    body = {f"backbone.{key}": value for key, value in mini(leaf).items()}
    return {"state_dict": body | {f"{part}.fc.weight": torch.zeros(1) for part in parts}}


SOURCES: dict[str, Callable[[], dict[str, Any]]] = {
    "swin_tiny_patch4_window7_224.pth": lambda: official("cls_swin_t_relonly.py"),
    "work_dirs/cls_swin_t_relonly/epoch_300.pth": lambda: own("cls_swin_t_relonly.py", "head"),
    "work_dirs/cascade_swin_t_relonly/epoch_36.pth": lambda: own(
        "cascade_swin_t_relonly.py", "neck", "roi_head"
    ),
    "timm_swin_tiny.safetensors": lambda: convert(mini("cls_swin_t_relonly.py"), target="timm"),
    # 96x96 is the grid that the page's command names
    "swin_ape_384.pth": lambda: official("cls_swin_t_absonly.py", pretrain_img_size=384),
    "swin_tiny_window12.pth": lambda: official("cls_swin_t_relonly.py", window_size=6),
    "detr_irpe_k.pth": lambda: {
        "model": convert(state_of("mini/detr_r50_irpe_k"), target="official")
    },
    "swin_with_ema.pth": lambda: {
        "state_dict": official("cls_swin_t_relonly.py")["model"],
        "state_dict_ema": official("cls_swin_t_relonly.py")["model"],
    },
}


@pytest.mark.parametrize("command", COMMANDS, ids=[" ".join(words[-4:]) for words in COMMANDS])
def test_command(
    tool: ModuleType,  # noqa: F811
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    source = next(word for word in command if word in SOURCES)
    Path(source).parent.mkdir(parents=True, exist_ok=True)
    if source.endswith(".safetensors"):
        pytest.importorskip("safetensors.torch").save_file(SOURCES[source](), source)
    else:
        torch.save(SOURCES[source](), source)
    words = [re.sub(r"^configs/", f"{ROOT}/configs/mini/", word) for word in command]
    assert tool.main(words) == 0
    for word in command:
        if word.startswith("work_dirs/"):
            assert Path(word).is_file(), word


def test_the_page_has_commands() -> None:
    assert len(COMMANDS) > 10
