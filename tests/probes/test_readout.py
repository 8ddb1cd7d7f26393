"""Read-outs whose result is known: coordinates written into features, and noise."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Generator, Tensor

from relpos_mm.engine.errors import UserError
from relpos_mm.probes.readout import TARGETS, Readout, features, read_out
from relpos_mm.probes.ridge import held_out_r2

from ..models.tiny import tiny


def maps(channels: int, written: bool, count: int = 24) -> list[Tensor]:
    """Noise; with ``written`` a mixture of all channels holds the place."""
    generator = Generator().manual_seed(0)
    found = torch.randn(count, channels, 9, 12, generator=generator)
    if written:
        found[:, 0] = torch.arange(9.0)[:, None]
        found[:, 1] = torch.arange(12.0)
        turn = torch.linalg.qr(torch.randn(channels, channels, generator=generator))[0]
        found = torch.einsum("dc,bchw->bdhw", turn, found)
    return list(found)


def test_a_linear_coordinate_is_read_and_so_is_the_offset() -> None:
    scores = read_out(maps(6, written=True))
    for target in ("absolute place", "relative offset"):
        real, shuffled = scores[target]
        assert real > 0.9999, target
        assert abs(shuffled) < 0.1, target
    # The border is no linear function of the place.
    assert scores["distance to the border"][0] < 0.5


def test_nothing_is_read_from_noise() -> None:
    for target, numbers in read_out(maps(6, written=False)).items():
        assert max(map(abs, numbers)) < 0.1, target


def test_the_mean_scores_zero_and_scale_does_not_matter() -> None:
    generator = Generator().manual_seed(0)
    x, weights = (torch.randn(*s, generator=generator) for s in ((400, 3), (3, 2)))
    pictures = torch.arange(400) // 10
    fold = pictures < 30
    known = held_out_r2(x, x @ weights, fold, pictures)
    assert known.min() > 0.9999
    y = x @ weights + torch.randn(400, 2, generator=generator)
    scaled = held_out_r2(x * torch.tensor([1.0, 1e4, 1e-4]) + 7, 5 * y - 3, fold, pictures)
    assert torch.allclose(scaled, held_out_r2(x, y, fold, pictures), atol=1e-3)
    dead = held_out_r2(torch.ones(400, 3), y, fold, pictures)
    assert (dead <= 0).all()
    assert dead.min() > -0.2


def test_the_pictures_that_are_judged_are_not_fitted() -> None:
    """A feature per picture tells everything of those seen and nothing of the others."""
    generator = Generator().manual_seed(0)
    pictures = torch.arange(200) // 10
    x = torch.nn.functional.one_hot(pictures, 20).float()
    y = torch.randn(20, 1, generator=generator)[pictures]
    assert held_out_r2(x, y, pictures % 4 != 0, pictures).max() < 0.1
    with pytest.raises(ValueError, match="two pictures to fit and one to judge"):
        held_out_r2(x, y, pictures >= 0, pictures)


def test_a_map_of_one_token_has_no_place() -> None:
    assert set(read_out([torch.randn(4, 1, 1) for _ in range(12)]).values()) == {(None, None)}


def test_a_network_with_coordinates_in_its_table_shows_them_and_one_without_does_not() -> None:
    generator = Generator().manual_seed(0)
    pictures = [torch.randn(1, 3, 64, 64, generator=generator) for _ in range(12)]
    model, bare = tiny(position=[{"type": "AbsoluteTable"}]), tiny(position=[])
    line = torch.linspace(-3, 3, 16)
    with torch.no_grad():
        model.position["absolute_table"].absolute_pos_embed[0, 0] = line[:, None]
        model.position["absolute_table"].absolute_pos_embed[0, 1] = line[None, :]
    place, nothing = (
        [read_out(maps)["absolute place"][0] for maps in features(network.eval(), pictures)]
        for network in (model, bare)
    )
    assert place[0] > 0.8
    assert nothing[0] < 0.2
    assert len(place) == 4


def test_too_few_pictures_are_refused() -> None:
    with pytest.raises(UserError, match="--pictures: 8 are too few"):
        Readout().measure(SimpleNamespace(), {"pictures": 8, "draw": 0})
    assert len(TARGETS) == 3
