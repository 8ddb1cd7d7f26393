"""Ablations whose result is known: a zeroed table is no table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from relpos_mm.encodings import position_modules
from relpos_mm.engine.errors import UserError
from relpos_mm.models import RelPosSwin
from relpos_mm.probes.ablate import METHODS, Ablate, changed, given, places_last

from ..models.tiny import loud, picture, tiny

BOTH = ({"type": "AbsoluteTable"}, {"type": "RelativeBias"})
SETTINGS = {"methods": list(METHODS), "draws": 2, "donor": None, "pictures": None}


def last_map(model: RelPosSwin) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(picture(64, 80))[-1]


def without(model: RelPosSwin) -> RelPosSwin:
    """The same network without any encoding."""
    bare = tiny(position=[])
    bare.load_state_dict({k: v for k, v in model.state_dict().items() if "position" not in k})
    return bare


def test_zeroed_tables_are_no_tables() -> None:
    model = loud(tiny(position=BOTH))
    intact, bare = last_map(model), last_map(without(model))
    encodings = list(position_modules(model).values())
    assert not torch.allclose(intact, bare)
    with changed(encodings, METHODS["zero"]):
        assert torch.allclose(last_map(model), bare, atol=1e-6)
    assert torch.equal(last_map(model), intact), "the values came back"


def test_equal_offsets_say_nothing_whatever_they_are() -> None:
    """A softmax does not see a constant: the mean of a bias table is as good as none."""
    model = loud(tiny(position=[{"type": "RelativeBias"}]))
    encodings = list(position_modules(model).values())
    with changed(encodings, METHODS["mean"]):
        assert torch.allclose(last_map(model), last_map(without(model)), atol=1e-4)


def test_permuting_moves_whole_places() -> None:
    model = loud(tiny(position=BOTH))
    for name, encoding in position_modules(model).items():
        ((key, parameter),) = encoding.named_parameters()
        before = places_last(key, parameter).detach().clone()
        with changed([encoding], METHODS["permute"], seed=3):
            after = places_last(key, parameter).detach().clone()
        assert not torch.equal(before, after), name
        columns = [sorted(map(tuple, places.t().tolist())) for places in (before, after)]
        assert columns[0] == columns[1], name


@pytest.mark.parametrize("kind", ["DynamicBias", "ShawRelative", "ConvPosition", "MixedRope"])
def test_every_kind_of_parameter_is_changed_and_restored(kind: str) -> None:
    model = loud(tiny(position=[{"type": kind}], embed_dims=16, num_heads=(1, 2, 4, 8)))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for change in METHODS.values():
        with changed(list(position_modules(model).values()), change):
            assert any(not torch.equal(v, before[n]) for n, v in model.state_dict().items())
    assert all(torch.equal(v, before[n]) for n, v in model.state_dict().items())


def test_a_donor_of_the_same_encoding(tmp_path: Any) -> None:
    model, donor = loud(tiny(position=BOTH)), tiny(position=BOTH)
    torch.save({"state_dict": donor.state_dict()}, tmp_path / "donor.pth")
    encodings, own = position_modules(model), last_map(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with given(encodings, str(tmp_path / "donor.pth")):
        for name, value in model.state_dict().items():
            source = donor.state_dict() if "position" in name else before
            assert torch.equal(value, source[name]), name
    assert torch.equal(last_map(model), own)
    torch.save({"state_dict": without(donor).state_dict()}, tmp_path / "bare.pth")
    with (
        pytest.raises(UserError, match=r"--donor: .*bare.pth has no position.absolute"),
        given(encodings, str(tmp_path / "bare.pth")),
    ):
        pass


def test_each_encoding_is_compared_with_the_intact_model() -> None:
    """The score of this toy is how far its first map is from that of the bare network."""
    model = loud(tiny(position=[*BOTH, {"type": "Sinusoid2d"}]))
    bare = last_map(without(model))
    subject: Any = SimpleNamespace(model=model, metric="gap")
    subject.score = lambda count: {"gap": (last_map(model) - bare).abs().mean().item()}
    found = Ablate().measure(subject, SETTINGS)
    intact = subject.score(None)["gap"]
    assert found.numbers["gap, intact"] == pytest.approx(intact)
    zeros = [found.numbers[f"gap, {n} zero minus intact"] for n in ("absolute_table",)]
    assert all(z is not None and abs(z) > 1e-3 for z in zeros)
    assert len(found.details["relative_bias"]["permute"]) == 2
    assert found.notes == ["sinusoid2d has no parameters, so nothing of it can be changed"]
    assert {curve.series for curve in found.curves} == {"absolute_table", "relative_bias"}


@pytest.mark.parametrize(
    ("position", "message"),
    [
        ([], r"some\.pth: no position encoding in the model"),
        ([{"type": "Sinusoid2d"}], r"some\.pth: no position encoding with parameters"),
    ],
)
def test_a_model_without_anything_to_change_is_refused(
    position: list[dict[str, Any]], message: str
) -> None:
    subject: Any = SimpleNamespace(model=tiny(position=position), checkpoint="some.pth")
    with pytest.raises(UserError, match=message):
        Ablate().measure(subject, SETTINGS)


def test_a_donor_of_other_encodings_is_refused(tmp_path: Any) -> None:
    """Its table was learnt beside an absolute one, so it says nothing about this model's."""
    path = tmp_path / "donor.pth"
    torch.save({"state_dict": tiny(position=BOTH).state_dict()}, path)
    subject: Any = SimpleNamespace(
        model=tiny(position=[{"type": "RelativeBias"}]), checkpoint="some.pth"
    )
    with pytest.raises(UserError, match=r"--donor: .*donor\.pth .*differ.*absolute_table"):
        Ablate().measure(subject, {**SETTINGS, "donor": str(path)})
