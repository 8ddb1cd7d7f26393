"""Absolute embeddings against the windows: periods, phases, and the warning's conditions."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from relpos_mm.models import RelPosSwin
from relpos_mm.models.alignment import InterpolatedEmbeddingWarning, window_alignment

TABLE, WIN, SINES = "AbsoluteTable", "AbsoluteWin", "Sinusoid2d"


def build(*names: str, small_map: str = "pad", **more: Any) -> RelPosSwin:
    """A backbone on a grid of 16 x 16 tokens with windows of 4 x 4; its second stage has 8 x 8."""
    position = [dict({"type": name}, **more) for name in names]
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore", InterpolatedEmbeddingWarning)
        return RelPosSwin(
            embed_dims=8,
            depths=(2, 2),
            num_heads=(1, 2),
            out_indices=(0, 1),
            window_size=4,
            pretrain_img_size=64,
            position=position,
            small_map=small_map,  # type: ignore[arg-type]
        )


def warned(*names: str, **arguments: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught, torch.device("meta"):
        warnings.simplefilter("always")
        RelPosSwin(**arguments, position=[{"type": name} for name in names])
    return [str(w.message) for w in caught if w.category is InterpolatedEmbeddingWarning]


def test_a_table_keeps_step_on_its_own_grid_alone() -> None:
    backbone = build(TABLE)
    assert all(item.aligned for item in window_alignment(backbone))
    # Three halves as large: a period of 6 tokens, windows every 4 (first stage) and 8 (second).
    stretched = window_alignment(backbone, (24, 24))
    assert {item.period for item in stretched} == {(6.0, 6.0)}
    assert not any(item.aligned for item in stretched)
    # Twice as large: windows of the first stage see a half each, those of the second the whole.
    twice = {item.block: item.aligned for item in window_alignment(backbone, (32, 32))}
    assert twice == {f"stages.{i}.blocks.{j}": i == 1 for i in (0, 1) for j in (0, 1)}
    # One stretched axis is enough.
    assert not any(item.aligned for item in window_alignment(backbone, (16, 24)))


def test_stride_and_phase_are_in_tokens_of_the_stem() -> None:
    found = {item.block: item for item in window_alignment(build(TABLE))}
    assert [found[f"stages.{i}.blocks.0"].stride for i in (0, 1)] == [(4, 4), (8, 8)]
    assert found["stages.0.blocks.0"].phase == (0.0, 0.0)
    assert found["stages.0.blocks.1"].phase == (2.0, 2.0)  # shifted by half a window
    assert found["stages.1.blocks.1"].phase == (0.0, 0.0)  # by 4 tokens of the stem: one period


@pytest.mark.parametrize("size", [None, (24, 40), (31, 33)])
def test_a_tile_keeps_step_on_every_map(size: tuple[int, int] | None) -> None:
    assert all(item.aligned for item in window_alignment(build(WIN), size))
    odd = window_alignment(build(WIN, window_size=(3, 4)), size)
    assert not any(item.aligned for item in odd)


def test_fixed_sines_learn_no_period() -> None:
    assert window_alignment(build(SINES), (24, 24)) == []


def test_the_published_bug_is_named_once() -> None:
    (message,) = warned(TABLE)
    assert message.startswith("AbsoluteTable is out of step with the windows of ")
    assert "stages.0.blocks.0 with a window every 7 x 7 tokens" in message
    assert "its period becomes 14 x 21 tokens" in message
    assert "Window Attention is Bugged" in message
    assert len(warned(TABLE, "RelativeBias")) == 1


@pytest.mark.parametrize("names", [(), (WIN,), (SINES,), ("RelativeBias",)])
def test_other_encodings_pass(names: tuple[str, ...]) -> None:
    assert warned(*names) == []


def test_a_classifier_keeps_its_grid() -> None:
    assert warned(TABLE, small_map="shrink") == []
