"""The suites of the benchmark: what they compare, and that wrong results get no time."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch

from relpos_mm.analysis import (
    agreement,
    attention_call,
    benchmark_backbones,
    benchmark_calls,
    benchmark_trunk,
    trunk_step,
)
from relpos_mm.analysis.attention_call import Attention, Shape, encodings_of
from relpos_mm.analysis.benchmark import DTYPES, STEPS, LeftOut, Pair, Setting
from relpos_mm.analysis.catalogue import CATALOGUE
from relpos_mm.engine.errors import UserError

SMALL = {"embed_dims": 12, "depths": (2, 2, 2, 2), "num_heads": (1, 2, 3, 6)}
TINY = Shape(2, 4, (4, 5), 8)
BOTH, TRAINING = Setting(dtypes=list(DTYPES)), Setting(["training"], list(DTYPES))


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(benchmark_calls.SHAPES, "tiny", TINY)
    monkeypatch.setitem(benchmark_calls.SHAPES, "tiny_cls", Shape(2, 4, (4, 5), 8, prefix=1))


def measurable(found: Iterable[Pair | LeftOut]) -> list[Pair]:
    """Pairs of a suite that leaves nothing out, each run once."""
    pairs = []
    for one in found:
        assert isinstance(one, Pair), one
        one.run_base(), one.run()
        pairs.append(one)
    return pairs


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", [*CATALOGUE, benchmark_calls.FUSED])
def test_every_encoding_equals_its_reference(name: str) -> None:
    found = measurable(benchmark_calls.pairs([name], ["tiny", "tiny_cls"]))
    assert [(p.size, p.step) for p in found] == [
        (size, step) for size in ("tiny", "tiny_cls") for step in STEPS
    ]
    assert all(0 < p.error < 1e-4 for p in found)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", benchmark_calls.PUBLISHED)
def test_the_published_arithmetic_of_irpe_equals_ours(name: str) -> None:
    found = measurable(benchmark_calls.pairs([name], ["tiny"]))
    assert len(found) == 2
    assert all(0 < p.error < 1e-5 for p in found)


def test_single_calls_take_bfloat16_in_windows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(benchmark_calls.SHAPES, "window", TINY)
    monkeypatch.setitem(benchmark_calls.SHAPES, "detr", TINY)
    found = measurable(benchmark_calls.pairs(["rel"], ["window", "detr"], TRAINING))
    assert [(p.size, p.dtype) for p in found] == [
        ("window", "float32"),
        ("window", "bfloat16"),
        ("detr", "float32"),
    ]
    assert found[1].error > 100 * found[0].error


def test_bars_stand_at_their_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(benchmark_calls.SHAPES, "detr", TINY)
    calls = measurable(benchmark_calls.pairs(["irpe_k", "rel"], ["detr"]))
    assert [p.limit is not None for p in calls] == [True, True, False, False]
    monkeypatch.setattr(benchmark_trunk, "LIMIT_SIZE", "1x32x32")
    trunk = measurable(benchmark_trunk.pairs(["rel", "shaw"], ["1x32x32"], BOTH, SMALL))
    barred = [(p.name, p.dtype, p.step) for p in trunk if p.limit]
    assert barred == [("rel", "float32", "training")]


@pytest.mark.usefixtures("tiny")
def test_a_wrong_call_gets_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    attend = attention_call.attend

    def wrong(*args, impl: str, **kwargs):
        out = attend(*args, impl=impl, **kwargs)
        return out if impl == "eager" else out * 1.001

    monkeypatch.setattr(attention_call, "attend", wrong)
    found = list(benchmark_calls.pairs(["rel"], ["tiny"]))
    assert [(one.what, one.wrong) for one in found] == [
        (f"rel against none, tiny, float32, {step}", True) for step in STEPS
    ]


@pytest.mark.usefixtures("tiny")
def test_the_training_step_reaches_every_parameter() -> None:
    call = Attention(TINY, encodings_of(TINY, "irpe_qkv"))
    out, *grads = call.training()
    assert [tuple(grad.shape) for grad in grads[:3]] == [tuple(out.shape)] * 3
    parameters = [p for encoding in call.encodings for p in encoding.parameters()]
    assert [g.shape for g in grads[3:]] == [p.shape for p in parameters]
    assert all(grad.abs().max() > 0 for grad in grads)


@pytest.mark.parametrize("name", ["abs", "rel", "irpe_qkv", "rope_mixed", "peg"])
def test_backbones_with_encodings_equal_float64(name: str) -> None:
    found = measurable(benchmark_trunk.pairs([name], ["1x64x70"], BOTH, SMALL))
    assert [(p.base, p.dtype, p.step) for p in found] == [
        ("noenc", dtype, step) for dtype in DTYPES for step in STEPS
    ]
    assert all(0 < p.error < 1e-5 for p in found if p.dtype == "float32")
    assert all(1e-4 < p.error < 0.2 for p in found if p.dtype == "bfloat16")


@pytest.mark.parametrize("library", benchmark_backbones.LIBRARIES)
def test_backbones_of_all_libraries_agree(library: str) -> None:
    if library == "timm":
        pytest.importorskip("timm", reason="timm is optional")
    size = "1x224x224" if benchmark_backbones.LIBRARIES[library][1] == "shrink" else "1x50x70"
    found = measurable(benchmark_backbones.pairs([library], [size], arch=SMALL))
    assert [p.step for p in found] == list(STEPS)
    assert all(p.error < 1e-5 for p in found)


def test_gradients_of_all_parameters_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """One parameter's gradient is off: training gets no time, inference does."""
    results = benchmark_backbones.TrunkStep.results

    def off(self):
        found = results(self)
        if "norm2.weight" in found.parameters and hasattr(self.model, "position_cfg"):
            found.parameters["stages.1.blocks.0.norm1.bias"].mul_(1.01)
        return found

    monkeypatch.setattr(benchmark_backbones.TrunkStep, "results", off)
    inference, training = benchmark_backbones.pairs(["mmdet"], ["1x64x64"], arch=SMALL)
    assert isinstance(inference, Pair)
    assert isinstance(training, LeftOut)
    assert training.wrong


def test_in_half_precision_the_base_sets_the_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch itself loses at a size is no fault of a network that loses as much."""
    monkeypatch.setitem(agreement._TOLERANCE, torch.bfloat16, 1e-6)
    for suite, name in ((benchmark_backbones, "mmdet"), (benchmark_trunk, "abs")):
        found = measurable(suite.pairs([name], ["1x64x64"], TRAINING, SMALL))
        assert found[1].dtype == "bfloat16"
        assert found[1].error > 1e-4
    monkeypatch.setattr(agreement, "_AS_THE_BASE", 0.5)
    _, left = benchmark_backbones.pairs(["mmdet"], ["1x64x64"], TRAINING, SMALL)
    assert isinstance(left, LeftOut)
    assert left.wrong


def test_other_weights_get_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    convert = benchmark_backbones.convert

    def other(state, target: str):
        weights = convert(state, target=target)
        return {k: v * 1.01 if v.is_floating_point() else v for k, v in weights.items()}

    monkeypatch.setattr(benchmark_backbones, "convert", other)
    found = list(benchmark_backbones.pairs(["mmdet"], ["1x64x64"], arch=SMALL))
    assert [one.what for one in found] == [
        f"RelPosSwin against mmdet, 1x64x64, float32, {step}" for step in STEPS
    ]
    assert all(one.wrong for one in found)


def test_a_size_that_a_library_cannot_take_is_told() -> None:
    (left,) = benchmark_backbones.pairs(["torchvision"], ["1x50x66"], arch=SMALL)
    assert left.what == "torchvision at 1x50x66"
    assert left.why == "torchvision takes multiples of 4 pixels, not 50 x 66"
    (left,) = benchmark_backbones.pairs(["timm"], ["1x64x96"], arch=SMALL)
    assert "timm has a rule of its own" in left.why or "timm is not installed" in left.why
    assert not left.wrong


def test_pictures_that_memory_does_not_hold_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trunk_step, "_free_bytes", lambda device: 10**8)
    for suite in (benchmark_backbones, benchmark_trunk):
        (left,) = suite.pairs(None, ["1x100x200"], arch=SMALL)
        assert "GiB are free" in left.why
        assert left.what == "Swin-T at 1x100x200"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: benchmark_calls.pairs(["rel"], ["huge"]), "no shape is called 'huge'"),
        (lambda: benchmark_calls.pairs(["relative"], ["vit"]), "no encoding is called"),
        (lambda: benchmark_trunk.pairs(["relative"], ["1x8x8"], arch=SMALL), "no encoding is"),
        (lambda: benchmark_backbones.pairs(["jax"], ["1x64x64"]), "no library is called"),
        (lambda: benchmark_backbones.pairs(["mmdet"], ["64x64"]), "a size is written"),
    ],
)
def test_unknown_names_are_refused(call, message: str) -> None:
    with pytest.raises(UserError, match=message):
        next(call())
