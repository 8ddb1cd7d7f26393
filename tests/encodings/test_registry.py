"""Building ``position`` lists, and what they are called."""

from __future__ import annotations

import pytest
import torch

from relpos_mm.analysis.catalogue import CATALOGUE
from relpos_mm.encodings import position_modules, position_slug
from relpos_mm.registry import build_positions, site_of

ABSOLUTE, RELATIVE, SINES = ({"type": t} for t in ("AbsoluteTable", "RelativeBias", "Sinusoid2d"))
IRPE, LEPE = {"type": "ContextualRpe"}, {"type": "LocalEnhanced"}
CONTEXT = {"embed_dims": 8, "num_heads": 2, "window_size": (3, 3), "grid_size": (4, 4), "layer": 0}


def test_each_encoding_gets_the_context_that_it_names() -> None:
    absolute, relative = build_positions([ABSOLUTE, {**RELATIVE, "window_size": (5, 5)}], **CONTEXT)
    assert absolute.absolute_pos_embed.shape == (1, 8, 4, 4)
    assert relative.relative_position_bias_table.shape == (81, 2)
    assert [absolute.name, relative.name] == ["absolute_table", "relative_bias"]


@pytest.mark.parametrize("name", CATALOGUE)
def test_hosts_find_every_encoding_at_the_site_that_it_acts_at(name: str) -> None:
    """They decide by the class before anything is built: another answer there and it never acts."""
    for cfg in CATALOGUE[name]:
        (encoding,) = build_positions([cfg], **{**CONTEXT, "embed_dims": 16, "depth": 1})
        assert site_of(cfg) == encoding.site


def test_building_an_encoding_does_not_move_the_random_state() -> None:
    states = []
    for position in ([], [RELATIVE], [ABSOLUTE, RELATIVE, SINES]):
        torch.manual_seed(0)
        build_positions(position, **CONTEXT)
        states.append(torch.rand(1).item())
    assert len(set(states)) == 1


@pytest.mark.parametrize(
    ("position", "message"),
    [
        ([{"type": "RelativeBais"}], "did you mean 'RelativeBias'"),
        ([{"type": "Qwertz"}], "known are AbsoluteTable, "),
        ([{"kind": "RelativeBias"}], "a dict with a 'type'"),
        (["RelativeBias"], "a dict with a 'type'"),
        ([{**RELATIVE, "heads": 3}], "RelativeBias has no argument 'heads'; it takes .*num_heads"),
        ([RELATIVE, RELATIVE], "stands twice"),
        ([{**SINES, "site": "block"}], "site must be"),
        ([{**SINES, "embed_dims": 6}], "Sinusoid2d: embed_dims=6, but the model has 8 here"),
        ([{**RELATIVE, "num_heads": 7}], "RelativeBias: num_heads=7, but the model has 2 here"),
        ([{**ABSOLUTE, "embed_dims": 7}], "AbsoluteTable: embed_dims=7, but the model has 8 here"),
        ([{**ABSOLUTE, "prefix_tokens": 2}], "prefix_tokens=2, but the model has 1 here"),
        ([{**LEPE, "shifted": False}], "LocalEnhanced: shifted=False, but the model has True here"),
        ([{**SINES, "form": "detrr"}], "unknown form='detrr'"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(position, message) -> None:
    with pytest.raises(ValueError, match=message):
        build_positions(position, prefix_tokens=1, shifted=True, **CONTEXT)


def test_what_the_host_has_may_be_repeated_and_tables_may_cover_more() -> None:
    table, relative = build_positions(
        [
            {**ABSOLUTE, "prefix_tokens": 0, "embed_dims": 8, "grid_size": (9, 9)},
            {**RELATIVE, "num_heads": 2, "window_size": 5},
        ],
        prefix_tokens=1,
        **CONTEXT,
    )
    assert table.prefix_pos_embed is None
    assert len(relative.relative_position_bias_table) == 81


def test_a_missing_argument_is_named() -> None:
    with pytest.raises(ValueError, match=r"RelativeBias: missing a required.*'window_size'"):
        build_positions([RELATIVE], num_heads=2)


@pytest.mark.parametrize(
    ("position", "slug"),
    [
        ([], "noenc"),
        ([ABSOLUTE], "absonly"),
        ([RELATIVE], "relonly"),
        ([RELATIVE, ABSOLUTE], "absrel"),
        ([SINES], "sin2d"),
        ([SINES, RELATIVE], "rel_sin2d"),
        ([RELATIVE, SINES], "rel_sin2d"),
    ],
)
def test_slugs(position, slug) -> None:
    assert position_slug(position) == slug


@pytest.mark.parametrize(
    ("position", "slug"),
    [
        ([SINES], "abs"),
        ([SINES, IRPE], "irpe_k"),
        ([IRPE], "irpe_k_noabs"),
        ([{**IRPE, "mode": "bias"}, SINES], "irpe_bias"),
        ([], "noabs"),
    ],
)
def test_slugs_of_hosts_with_a_usual_absolute_encoding(position, slug) -> None:
    assert position_slug(position, "sin2d") == slug


def test_position_modules_are_found_under_their_names() -> None:
    encodings = build_positions([ABSOLUTE, RELATIVE], **CONTEXT)
    model = torch.nn.ModuleDict({"a": torch.nn.Sequential(*encodings), "b": torch.nn.Linear(1, 1)})
    assert position_modules(model) == {"a.0": encodings[0], "a.1": encodings[1]}
