"""Arguments of other code bases are refused with the name that they have here."""

from __future__ import annotations

import inspect

import pytest
from mmengine.registry import MODELS

from relpos_mm.models import RelPosDetrEncoder, RelPosSwin, RelPosViT
from relpos_mm.models.renamed_arguments import RENAMED, refuse_unknown


def test_every_foreign_name_of_a_config_is_answered_at_once() -> None:
    official = {"embed_dim": 96, "ape": True, "use_checkpoint": True, "pretrained": "swin.pth"}
    with pytest.raises(TypeError) as error:
        MODELS.build({"type": "RelPosSwin", **official})
    for answer in (
        "embed_dim -> embed_dims=",
        "ape -> position=[dict(type='AbsoluteTable')",
        "use_checkpoint -> with_cp=True",
        "pretrained -> init_cfg=dict(type='Pretrained'",
    ):
        assert answer in str(error.value)


def test_typing_errors_get_the_nearest_name_and_others_the_list() -> None:
    with pytest.raises(TypeError, match=r"window_sise -> did you mean window_size\?"):
        RelPosSwin(window_sise=7)
    with pytest.raises(TypeError, match="zzz -> not known; arguments are depths, drop_path_rate"):
        RelPosSwin(zzz=1)


def test_the_answers_name_arguments_that_exist() -> None:
    models = (RelPosSwin, RelPosViT, RelPosDetrEncoder)
    known = {name for model in models for name in inspect.signature(model).parameters}
    assert not known & set(RENAMED)
    for answer in RENAMED.values():
        assert answer.startswith("no argument") or answer.split("=")[0] in known


def test_each_model_is_told_arguments_of_its_own() -> None:
    with pytest.raises(TypeError, match=r"layer_cfg -> num_heads=, .* nhead -> num_heads=<number>"):
        RelPosDetrEncoder(layer_cfg={}, nhead=8)
    with pytest.raises(
        TypeError, match="dim_feedforward -> not known; arguments are depth, drop_p"
    ):
        RelPosViT(dim_feedforward=2048)


def test_known_arguments_pass() -> None:
    refuse_unknown("RelPosSwin", [], ["depths"])


@pytest.mark.parametrize("model", [RelPosSwin, RelPosViT, RelPosDetrEncoder])
def test_flags_are_true_or_false(model: type) -> None:
    parameters = inspect.signature(model).parameters
    flags = [name for name, parameter in parameters.items() if parameter.annotation == "bool"]
    assert len(flags) >= 2
    for name in flags:
        for value in ("no", 1, None):
            message = f"^{model.__name__}: {name} must be True or False, got {value!r}$"
            with pytest.raises(ValueError, match=message):
                model(**{name: value})
