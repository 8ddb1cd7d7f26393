"""Equal seeds start the rest of a network equally, whatever encodings it has."""

from __future__ import annotations

import pytest
import torch

from relpos_mm.models import RelPosSwin

SIZES = {"embed_dims": 32, "depths": (1, 2), "num_heads": (1, 2), "window_size": (4, 4)}


def start(position: list[dict]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    torch.manual_seed(0)
    model = RelPosSwin(**SIZES, out_indices=(0, 1), pretrain_img_size=64, position=position)
    return model.state_dict(), torch.rand(3)


@pytest.mark.parametrize(
    "position",
    [
        {"type": "RelativeBias", "content": False},
        {"type": "DynamicBias"},
        {"type": "LogCoordBias", "cosine": True},
        {"type": "DecomposedBias", "zero_init": False},
        {"type": "ShawRelative", "values": True},
        {"type": "HuangRelative"},
        {"type": "TransformerXLRelative"},
        {"type": "SasaRelative"},
        {"type": "Disentangled"},
        {"type": "Disentangled", "share_projections": True},
        {"type": "Alibi2d"},
        {"type": "DirectedDistance"},
    ],
    ids=lambda position: position["type"],
)
def test_encodings_draw_no_numbers_of_others(position: dict) -> None:
    expected, following = start([])
    state, after = start([position])
    shared = {name: value for name, value in state.items() if name in expected}
    assert shared.keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in shared.items())
    assert torch.equal(after, following)


def test_trained_width_of_a_network_inside_an_encoding_starts_as_it_says() -> None:
    state, _ = start([{"type": "TransformerXLRelative"}])
    weights = [value for name, value in state.items() if name.endswith("r_net.weight")]
    assert all(0.015 < weight.std() < 0.025 for weight in weights)
