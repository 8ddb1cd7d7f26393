"""The backbone in training: initial values, frozen parts, checkpointing, gradients."""

from __future__ import annotations

import pytest
import torch
from mmcv.cnn.bricks import DropPath

from relpos_mm.encodings import position_modules
from relpos_mm.models.swin_layers import add_branch

from .tiny import ABSOLUTE, POSITIONS, RELATIVE, SINES, picture, tiny


def test_huge_weights_survive_training_in_float16() -> None:
    """Logits beyond 65504 before the softmax, the classic source of a NaN loss."""
    model = tiny().train()
    with torch.no_grad():
        for stage in model.stages:
            for block in stage.blocks:
                block.attn.qkv.weight.mul_(40 / 0.02 * 0.3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = sum(out.float().square().mean() for out in model(picture(64, 64)))
        assert torch.isfinite(loss)
        loss.backward()
        assert all(torch.isfinite(p.grad).all() for p in model.parameters())
        optimizer.step()


@pytest.mark.parametrize(
    ("stages", "frozen"),
    [
        (-1, ()),
        (0, ("patch_embed", "position")),
        (2, ("patch_embed", "position", "stages.0", "stages.1", "norm0", "norm1")),
        (4, ("patch_embed", "position", "stages.", "norm")),
    ],
)
def test_frozen_from_construction_on_and_through_training(stages: int, frozen) -> None:
    model = tiny(position=[ABSOLUTE, RELATIVE], frozen_stages=stages, drop_path_rate=0.5)

    def check() -> None:
        for name, parameter in model.named_parameters():
            assert parameter.requires_grad != name.startswith(frozen), name
        for name, module in model.named_modules():
            if name.startswith(frozen):
                assert not module.training, name

    check()
    assert model.train() is model
    check()
    model.init_weights()
    check()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainable = [p for p in model.parameters() if p.requires_grad]
    if trainable:
        optimizer = torch.optim.AdamW(trainable, lr=0.1)
        for _ in range(3):
            sum(out.sin().sum() for out in model(picture(40, 50))).backward()
            optimizer.step()
    after = model.state_dict()
    for name, value in after.items():
        if name.startswith(frozen):
            assert torch.equal(value, before[name]), name
    assert all(torch.equal(after[name], before[name]) for name in before) == (stages == 4)
    model.eval()
    assert not any(module.training for module in model.modules())


@pytest.mark.parametrize("frozen_stages", [-1, 1])
def test_checkpointing_gives_the_same_gradients(frozen_stages: int) -> None:
    gradients = []
    for with_cp in (False, True):
        model = tiny(
            with_cp=with_cp,
            drop_path_rate=0.3,
            position=[ABSOLUTE, RELATIVE],
            frozen_stages=frozen_stages,
        )
        model.train()
        torch.manual_seed(3)
        # No gradient reaches the frozen part: re-entrant checkpoints would lose the one behind it.
        sum(out.square().mean() for out in model(picture(50, 70, batch=3))).backward()
        gradients.append([p.grad for p in model.parameters() if p.requires_grad])
    for plain, recomputed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, recomputed, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("out_indices", [(0,), (3,), (1, 3), (0, 1, 2), (0, 1, 2, 3)])
@pytest.mark.parametrize("with_cp", [False, True])
def test_no_parameter_is_left_without_a_gradient(out_indices, with_cp: bool) -> None:
    model = tiny(out_indices=out_indices, position=[ABSOLUTE, RELATIVE], with_cp=with_cp)
    outs = model(picture(120, 120))
    assert len(outs) == len(out_indices)
    sum(out.sin().sum() for out in outs).backward()
    left = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert left == []


def test_initial_values_follow_the_official_recipe() -> None:
    model = tiny(embed_dims=24, num_heads=(3, 6, 12, 24), position=[ABSOLUTE, RELATIVE])
    for name, parameter in model.named_parameters():
        value = parameter.detach()
        if "patch_embed.projection" in name:
            assert value.abs().max() <= 48**-0.5 + 1e-6  # torch's own range of a convolution
        elif name.endswith("bias"):
            assert (value == 0).all(), name
        elif "norm" in name:
            assert (value == 1).all(), name
        else:
            tolerance = 3 * 0.02 / (2 * value.numel()) ** 0.5  # three standard errors
            assert abs(value.std().item() - 0.02) < tolerance, name
            assert abs(value.mean().item()) < 2 * tolerance, name


def test_equal_seeds_give_equal_values_whatever_the_encodings() -> None:
    reference = tiny(position=[]).state_dict()
    for position in POSITIONS.values():
        state = tiny(position=position).state_dict()
        own = [key for key in state if ".position." not in key and not key.startswith("position.")]
        assert set(own) == set(reference)
        assert all(torch.equal(state[key], reference[key]) for key in own)
    both = tiny(position=[ABSOLUTE, RELATIVE]).state_dict()
    for position in ([ABSOLUTE], [RELATIVE]):
        for key, value in tiny(position=position).state_dict().items():
            assert torch.equal(value, both[key]), key


def test_blocks_have_tables_of_their_own() -> None:
    tables = [e.relative_position_bias_table for e in position_modules(tiny()).values()]
    assert len(tables) == 8
    assert not torch.equal(tables[0], tables[1])


def test_training_works_after_inference_mode_filled_the_caches() -> None:
    model = tiny(position=[ABSOLUTE, SINES, RELATIVE])
    x = picture(52, 76)
    with torch.inference_mode():
        model(x)
    sum(out.sum() for out in model(x)).backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_residual_branch_is_dropped_as_the_library_drops_it(dtype: torch.dtype) -> None:
    """Same random numbers, same result, same gradients; narrow branches keep the map's dtype."""
    x, branch = torch.randn(2, 64, 3, 2, 4, dtype=torch.float64).unbind()
    branch = branch.to(dtype)
    results = []
    for function in (add_branch, lambda x, branch, drop: x + drop(branch)):
        for training in (True, False):
            torch.manual_seed(0)
            leaves = [x.clone().requires_grad_(), branch.clone().requires_grad_()]
            out = function(*leaves, DropPath(0.4).train(training))
            results.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    for ours, theirs in zip(results[:2], results[2:], strict=True):
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)
    dropped = (results[0][0] == x).flatten(1).all(dim=1)
    assert 0 < dropped.sum() < len(x)
