"""Checkpoints of another window or grid, through every way that loads one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from mmengine.logging import MMLogger
from mmengine.model import BaseModule
from mmengine.runner import load_checkpoint
from torch import Tensor, nn

from relpos_mm.encodings import position_modules
from relpos_mm.encodings.resize import resize_absolute, resize_bias_table

from .tiny import ABSOLUTE, RELATIVE, loud, picture, tiny

BOTH = [ABSOLUTE, RELATIVE]
TABLE = "relative_position_bias_table"


class Detector(BaseModule):
    """Holds the backbone two levels deep, as detectors inside wrappers do."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.student = nn.ModuleDict({"backbone": backbone})


def by_state_dict(model: nn.Module, file: Path) -> None:
    model.load_state_dict(torch.load(file, weights_only=True))


def by_load_checkpoint(model: nn.Module, file: Path) -> None:
    """What the runner does for ``load_from`` and ``resume``."""
    load_checkpoint(model, str(file), map_location="cpu")


def inside_a_detector(model: nn.Module, file: Path) -> None:
    state = torch.load(file, weights_only=True)
    nested = {f"student.backbone.{key}": value for key, value in state.items()}
    Detector(model).load_state_dict(nested)


WAYS = [by_state_dict, by_load_checkpoint, inside_a_detector]


@pytest.fixture
def checkpoint(tmp_path: Path) -> tuple[Path, dict[str, Tensor]]:
    state = loud(tiny(position=BOTH)).state_dict()
    file = tmp_path / "classifier.pth"
    torch.save(state, file)
    return file, state


def assert_resized(model: nn.Module, state: dict[str, Tensor], window: int, side: int) -> None:
    loaded = model.state_dict()
    assert loaded.keys() == state.keys()
    for key, value in loaded.items():
        if key.endswith(TABLE):
            expected = resize_bias_table(state[key], (7, 7), (window, window))
        elif key.endswith("absolute_pos_embed"):
            expected = resize_absolute(state[key], (side, side))
        else:
            expected = state[key]
        assert torch.equal(value, expected), key


@pytest.mark.parametrize("load", WAYS)
@pytest.mark.parametrize(("window", "side"), [(7, 16), (12, 16), (4, 20)])
def test_every_way_of_loading_resizes(
    checkpoint, load: Callable[[nn.Module, Path], None], window: int, side: int
) -> None:
    file, state = checkpoint
    model = tiny(position=BOTH, window_size=window, pretrain_img_size=4 * side)
    load(model, file)
    assert_resized(model, state, window, side)
    assert all(torch.isfinite(out).all() for out in model(picture(50, 70)))


@pytest.mark.parametrize("window", [4, 12])
def test_init_cfg_resizes_and_says_so(
    checkpoint, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, state = checkpoint
    lines: list[str] = []
    logger = MMLogger.get_current_instance()
    monkeypatch.setattr(logger, "log", lambda level, message, *rest: lines.append(str(message)))
    model = tiny(
        position=BOTH,
        window_size=window,
        pretrain_img_size=80,
        init_cfg={"type": "Pretrained", "checkpoint": str(file)},
    )
    model.init_weights()
    assert_resized(model, state, window, 20)
    resized = [line for line in lines if line.startswith("resized on load")]
    assert len(resized) == len(position_modules(model)) == 9  # one embedding, eight tables
    rows = (2 * window - 1) ** 2
    table = f"stages.0.blocks.0.attn.position.relative_bias.{TABLE}: (169, 1) -> ({rows}, 1)"
    assert any(table in line for line in resized)
    assert any("(1, 12, 16, 16) -> (1, 12, 20, 20)" in line for line in resized)


def test_loading_leaves_the_callers_state_dict_alone(checkpoint) -> None:
    _, state = checkpoint
    before = dict(state)
    tiny(position=BOTH, window_size=4, pretrain_img_size=32).load_state_dict(state)
    assert state.keys() == before.keys()
    assert all(state[key] is value for key, value in before.items())


def test_index_buffers_in_a_file_change_nothing_and_are_reported(checkpoint) -> None:
    _, state = checkpoint
    prefix = "stages.0.blocks.0.attn.position.relative_bias."
    with_index = {**state, prefix + "relative_position_index": torch.zeros(49, 49).long()}
    model = tiny(position=BOTH, window_size=4)
    result = model.load_state_dict(with_index, strict=False)
    assert result.unexpected_keys == [prefix + "relative_position_index"]
    assert_resized(model, state, 4, 16)


def test_heads_and_widths_that_differ_are_named_with_the_argument_to_change() -> None:
    state = tiny(embed_dims=12, num_heads=(3, 3, 3, 6)).state_dict()
    with pytest.raises(ValueError, match=r"stages\.0.*\(169, 3\).*\(169, 4\).*num_heads"):
        tiny(embed_dims=12, num_heads=(4, 3, 3, 6)).load_state_dict(state)
    wide = tiny(embed_dims=24, position=[ABSOLUTE]).state_dict()
    with pytest.raises(ValueError, match=r"absolute_pos_embed: \(1, 24, 16, 16\).*embed_dims"):
        tiny(embed_dims=12, position=[ABSOLUTE]).load_state_dict(wide)


def test_the_embedding_is_added_unchanged_at_the_pretraining_size() -> None:
    model = loud(tiny(position=[ABSOLUTE])).eval()
    table = model.position["absolute_table"].absolute_pos_embed
    seen: list[Tensor] = []
    model.stages[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    x = picture(64, 64)
    model(x)
    patches = model.patch_embed(x)[0].view(1, 16, 16, 12)
    assert torch.equal(seen[0], patches + table.permute(0, 2, 3, 1))
