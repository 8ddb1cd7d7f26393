"""Export of the backbone with every encoding: for one size, on which the program insists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from relpos_mm.analysis.catalogue import CATALOGUE
from relpos_mm.models import RelPosSwin
from relpos_mm.models.windows import window_plan

from .tiny import loud, picture

USUAL = ("rel", "abs")


def small(position: Sequence[dict[str, Any]]) -> RelPosSwin:
    """Two blocks, the second one with shifted windows."""
    torch.manual_seed(0)
    model = RelPosSwin(
        embed_dims=8,
        depths=(2,),
        num_heads=(2,),
        out_indices=(0,),
        window_size=4,
        pretrain_img_size=64,
        position=position,
    )
    return loud(model).eval()


@torch.no_grad()
def check_export(position: Sequence[dict[str, Any]]) -> None:
    """On a map that no window divides: the same result, and no other size."""
    model, x = small(position), picture(36, 52)
    expected = model(x)[0]  # the first call makes the tables of this size
    exported = torch.export.export(model, (torch.zeros_like(x),), strict=False).module()
    torch.testing.assert_close(exported(x)[0], expected, atol=1e-4, rtol=1e-4)
    with pytest.raises(AssertionError, match="Guard failed"):
        exported(picture(40, 52))


@torch.no_grad()
def test_tables_are_never_made_by_an_export() -> None:
    """Its tensors hold no numbers; in a cache they would break every later call of that size."""
    model, x = small(CATALOGUE["rel"]), picture(36, 52)
    expected = model(x)[0]
    window_plan.cache_clear()
    with pytest.raises(RuntimeError, match="run the model once on an input of this size"):
        torch.export.export(model, (x,), strict=False)
    torch.testing.assert_close(model(x)[0], expected)


@torch.no_grad()
@pytest.mark.parametrize("name", ["rel", "irpe_k", "rope_mixed"])
def test_onnx_gives_the_same_numbers(name: str) -> None:
    """In onnxruntime, on a map that no window divides; another size is refused there, too."""
    for package in ("onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason="the optional extra `export` is not installed")
    import onnxruntime

    model, x = small(CATALOGUE[name]), picture(36, 52)
    expected = model(x)[0]
    program = torch.onnx.export(model, (torch.zeros_like(x),), dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    (entry,) = (node.name for node in session.get_inputs())
    (found,) = session.run(None, {entry: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-4, rtol=1e-4)
    with pytest.raises(Exception, match="invalid dimensions"):
        session.run(None, {entry: picture(40, 52).numpy()})


@pytest.mark.parametrize("name", USUAL)
def test_export_of_the_published_encodings(name: str) -> None:
    check_export(CATALOGUE[name])


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in CATALOGUE if name not in USUAL])
def test_export_of_every_other_encoding(name: str) -> None:
    check_export(CATALOGUE[name])


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_torchscript_trace_gives_the_same_numbers() -> None:
    """With and without autograd: a trace cannot hold a function with a backward of its own."""
    model, x = small(CATALOGUE["rel"]), picture(36, 52)
    expected = model(x)[0]
    for enabled in (False, True):
        with torch.set_grad_enabled(enabled):
            traced = torch.jit.trace(model, (torch.zeros_like(x),), check_trace=False)
            torch.testing.assert_close(traced(x)[0], expected)
