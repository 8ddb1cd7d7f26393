"""The backbone against numbers of the Swin authors' own code."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from relpos_mm.models import RelPosSwin
from relpos_mm.transfer import convert

from .files import arrays, swin_file
from .tiny import POSITIONS

VARIANTS = ("relative", "absolute_relative", "absolute", "none")
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5}


def dense(variant: str, weights: dict[str, Tensor], stages: int) -> RelPosSwin:
    model = RelPosSwin(
        embed_dims=24,
        depths=(2,) * stages,
        num_heads=(3, 3, 6, 12)[:stages],
        window_size=7,
        position=POSITIONS[variant],
        pretrain_img_size=64,
        out_indices=range(stages),
    )
    load(model, convert(weights, source="official"))
    return model.eval()


def load(model: RelPosSwin, state: dict[str, Tensor]) -> None:
    """Everything the model has must come from the file; the variant's unused tables may not."""
    result = model.load_state_dict(state, strict=False)
    assert result.missing_keys == []
    assert all("position" in key for key in result.unexpected_keys)


def closest(model: RelPosSwin, x: Tensor, expected: dict[int, Tensor]) -> float:
    outs = model(x)
    return max((outs[i].double() - value).abs().max().item() for i, value in expected.items())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("variant", VARIANTS)
def test_three_stages_equal_the_official_detection_backbone(variant: str, dtype) -> None:
    model = dense(variant, swin_file("weights_w7_stages012"), 3).to(dtype)
    inputs, outputs = swin_file("inputs_w7"), swin_file("outputs_w7_stages012")
    for name in "abc":
        keys = {i: f"{variant}/{name}/stage{i}" for i in range(3)}
        expected = {i: outputs[key] for i, key in keys.items() if key in outputs}
        with torch.no_grad():
            assert closest(model, inputs[name].to(dtype), expected) < TOLERANCE[dtype]


@pytest.fixture(scope="module")
def weights(golden_dir: Path) -> dict[str, Tensor]:
    return arrays(golden_dir / "swin" / "weights_w7.npz")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("variant", VARIANTS)
def test_all_stages_and_gradients_equal_the_official_ones(
    golden_dir: Path, weights: dict[str, Tensor], variant: str, dtype: torch.dtype
) -> None:
    model = dense(variant, weights, 4).to(dtype)
    golden = arrays(golden_dir / "swin" / f"outputs_w7_{variant}.npz")
    inputs = swin_file("inputs_w7")
    for name in "abc":
        expected = {i: golden[f"{name}/stage{i}"] for i in range(4)}
        assert closest(model, inputs[name].to(dtype), expected) < TOLERANCE[dtype]

    x = inputs["c"].to(dtype).requires_grad_()
    loss = sum(
        (out * torch.arange(out.numel(), dtype=torch.float64).cos().to(dtype).view_as(out)).mean()
        for out in model(x)
    )
    assert abs(loss.item() - golden["c/loss"].item()) < TOLERANCE[dtype]
    loss.backward()
    stored = {
        key.removeprefix("c/grad/"): value
        for key, value in golden.items()
        if key.startswith("c/grad/")
    }
    torch.testing.assert_close(x.grad.double(), stored.pop("input"), atol=TOLERANCE[dtype], rtol=0)
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    for name, value in renamed(stored).items():
        torch.testing.assert_close(
            gradients[name].double(), value, atol=TOLERANCE[dtype], rtol=0, msg=name
        )


def renamed(official: dict[str, Tensor]) -> dict[str, Tensor]:
    """Names alone; the dense layouts differ in nothing else."""
    names = {
        "patch_embed.proj.": "patch_embed.projection.",
        "layers.": "stages.",
        "attn.relative_position_bias_table": "attn.position.relative_bias."
        "relative_position_bias_table",
        "absolute_pos_embed": "position.absolute_table.absolute_pos_embed",
    }
    state = {}
    for key, value in official.items():
        for old, new in names.items():
            key = key.replace(old, new)
        state[key] = value
    return state


@pytest.mark.parametrize("variant", VARIANTS)
def test_bfloat16_autocast_stays_near(
    golden_dir: Path, weights: dict[str, Tensor], variant: str
) -> None:
    model = dense(variant, weights, 4)
    golden = arrays(golden_dir / "swin" / f"outputs_w7_{variant}.npz")
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for name in "bc":
            expected = {i: golden[f"{name}/stage{i}"] for i in range(4)}
            assert closest(model, swin_file("inputs_w7")[name], expected) < 0.15


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("file", "window", "pixels"),
    [("classifier_w4", 4, 128), ("classifier_w8_shrinking", 8, 64)],
)
def test_the_shrinking_rule_equals_the_official_classifier(
    golden_dir: Path, file: str, window: int, pixels: int, variant: str
) -> None:
    golden = arrays(golden_dir / "swin" / f"{file}.npz")
    official = {key[3:]: value for key, value in golden.items() if key.startswith("sd/")}
    model = RelPosSwin(
        embed_dims=12,
        depths=(2, 2, 2, 2),
        num_heads=(1, 2, 3, 6),
        window_size=window,
        position=POSITIONS[variant],
        pretrain_img_size=pixels,
        small_map="shrink",
        out_indices=(3,),
    )
    load(model, convert(official, grid=(pixels // 4, pixels // 4)))
    model.double().eval()
    tokens: dict[str, Tensor] = {}
    for i, stage in enumerate(model.stages):
        stage.register_forward_hook(
            lambda _, args, out, i=i: tokens.update({f"{variant}/stage{i}_tokens": out})
        )
    pooled = model(golden["input"].double())[0].mean((2, 3))
    logits = pooled @ official["head.weight"].double().t() + official["head.bias"].double()
    assert (pooled - golden[f"{variant}/pooled"]).abs().max() < 1e-10
    assert (logits - golden[f"{variant}/logits"]).abs().max() < 1e-10
    for key, value in tokens.items():
        if key in golden:
            assert (value.flatten(1, 2) - golden[key]).abs().max() < 1e-10
