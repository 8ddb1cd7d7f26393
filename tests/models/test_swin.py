"""The backbone: any size, both small-map rules, precision, symmetry, refusals."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
from torch import nn

from relpos_mm.encodings import Grid, position_modules
from relpos_mm.models import RelPosSwin
from relpos_mm.models.swin_layers import PatchMerging
from relpos_mm.models.window_attention import WindowAttention

from .tiny import ABSOLUTE, POSITIONS, RELATIVE, SINES, loud, picture, tiny

SIZES = [(33, 65), (97, 131), (160, 160), (64, 512), (30, 45), (32, 32), (4, 4), (1, 1), (3, 90)]


def expected_shapes(size: tuple[int, int], model: RelPosSwin) -> list[tuple[int, ...]]:
    strides = (4, 8, 16, 32)
    return [
        (1, width, math.ceil(size[0] / stride), math.ceil(size[1] / stride))
        for width, stride in zip(model.num_features, strides, strict=True)
    ]


@pytest.mark.parametrize("rule", ["pad", "shrink"])
@pytest.mark.parametrize("position", POSITIONS.values(), ids=POSITIONS.keys())
def test_any_picture_of_at_least_one_pixel_runs(position, rule: str) -> None:
    model = tiny(position=position, small_map=rule)
    for train in (False, True):
        model.train(train)
        for size in SIZES:
            with torch.no_grad():
                outs = model(picture(*size))
            assert [tuple(out.shape) for out in outs] == expected_shapes(size, model)
            assert all(torch.isfinite(out).all() and out.is_contiguous() for out in outs)


def test_a_large_odd_picture_runs_with_every_encoding() -> None:
    model = tiny(position=[ABSOLUTE, SINES, RELATIVE]).eval()
    with torch.no_grad():
        outs = model(picture(648, 888))
    assert [tuple(out.shape) for out in outs] == expected_shapes((648, 888), model)


@pytest.mark.parametrize("window", [(4, 7), [7, 4], (2, 9), 5])
def test_non_square_windows_run(window) -> None:
    model = tiny(window_size=window).eval()
    tables = [e.relative_position_bias_table for e in position_modules(model).values()]
    sides = (window, window) if isinstance(window, int) else window
    assert {len(table) for table in tables} == {(2 * sides[0] - 1) * (2 * sides[1] - 1)}
    assert model(picture(60, 44))[3].shape == (1, 96, 2, 2)


def test_shrinking_windows_take_the_pretraining_maps_size() -> None:
    model = tiny(window_size=8, small_map="shrink")  # maps 16, 8, 4 and 2
    windows = [stage.blocks[0].attn.window_size for stage in model.stages]
    assert windows == [(8, 8), (8, 8), (4, 4), (2, 2)]
    assert tiny(window_size=8).stages[3].blocks[0].attn.window_size == (8, 8)


def test_the_two_rules_differ_on_small_maps_only() -> None:
    pad, shrink = (loud(tiny(window_size=4, small_map=rule)).eval() for rule in ("pad", "shrink"))
    assert pad.state_dict().keys() == shrink.state_dict().keys()
    shrink = loud(tiny(window_size=4, small_map="shrink", pretrain_img_size=128)).eval()
    shrink.load_state_dict(pad.state_dict())
    one, two = pad(picture(128, 128)), shrink(picture(128, 128))
    for a, b in zip(one[:3], two[:3], strict=True):
        assert torch.equal(a, b)
    assert (one[3] - two[3]).abs().max() > 0.05  # 4 x 4 tokens: one window, not shifted


def test_masked_padding_has_no_influence_and_the_default_follows_the_published_models() -> None:
    """Real tokens whose v is 0 stay at 0 when padding, whose v is the bias, is hidden."""
    influence = {}
    for masked in (False, True):
        host = WindowAttention(
            4,
            1,
            (7, 7),
            shifted=True,
            position=[],
            context={},
            mask_padding=masked,
        )
        with torch.no_grad():
            host.qkv.weight.copy_(torch.cat([torch.zeros(8, 4), torch.eye(4)]))
            host.qkv.bias.fill_(1.0)
            host.proj.weight.copy_(torch.eye(4))
            host.proj.bias.zero_()
        x = torch.full((1, 8, 10, 4), -1.0)  # v = x + 1 = 0 on real tokens, 1 on padding
        influence[masked] = host(x, Grid((8, 10))).abs().max().item()
    assert influence[True] == 0
    assert influence[False] > 0.1

    default, hidden = loud(tiny()).eval(), loud(tiny(mask_padding=True)).eval()
    same, other = picture(224, 224), picture(97, 131)
    assert torch.equal(default(same)[2], hidden(same)[2])  # 14 x 14: no padding up to here
    assert not torch.allclose(default(other)[0], hidden(other)[0], atol=1e-2)


@pytest.mark.parametrize("mask_padding", [False, True])
def test_transposing_picture_and_weights_transposes_the_output(mask_padding: bool) -> None:
    settings = {"position": [ABSOLUTE, RELATIVE], "mask_padding": mask_padding}
    model = loud(tiny(window_size=(4, 7), pretrain_img_size=(48, 80), **settings)).double().eval()
    turned = tiny(window_size=(7, 4), pretrain_img_size=(80, 48), **settings).double().eval()
    state = model.state_dict()
    for key, value in state.items():
        if key.endswith(("projection.weight", "absolute_pos_embed")):
            state[key] = value.transpose(2, 3)
        elif key.endswith("relative_position_bias_table"):
            state[key] = value.view(7, 13, -1).transpose(0, 1).flatten(0, 1)
        elif "downsample" in key:  # neighbours (0, 0), (1, 0), (0, 1), (1, 1)
            state[key] = torch.cat([value.chunk(4, -1)[i] for i in (0, 2, 1, 3)], -1)
    turned.load_state_dict(state)
    for size in ((97, 131), (30, 45), (20, 24), (64, 64)):
        x = picture(*size).double()
        for a, b in zip(model(x), turned(x.transpose(2, 3)), strict=True):
            torch.testing.assert_close(a.transpose(2, 3), b)


@pytest.mark.parametrize(
    ("size", "merged"), [((5, 6), (3, 3)), ((6, 5), (3, 3)), ((5, 5), (3, 3)), ((1, 1), (1, 1))]
)
def test_odd_maps_are_padded_at_the_bottom_and_right(size, merged) -> None:
    merging = PatchMerging(2)
    merging.norm = nn.Identity()
    merging.reduction = nn.Identity()
    x = torch.arange(1.0, 1 + size[0] * size[1]).view(1, *size, 1)
    out = merging(x)
    assert out.shape == (1, *merged, 4)
    for row in range(merged[0]):
        for column in range(merged[1]):
            for channel, (down, right) in enumerate(((0, 0), (1, 0), (0, 1), (1, 1))):
                y, z = 2 * row + down, 2 * column + right
                inside = y < size[0] and z < size[1]
                assert out[0, row, column, channel] == (x[0, y, z, 0] if inside else 0)


def test_whole_window_shifts_move_a_relative_only_stage_exactly() -> None:
    """Content moved by a whole window of the first stage gives the same features, moved."""
    model = loud(tiny(window_size=4, out_indices=(0,))).double().eval()
    absolute = loud(tiny(window_size=4, out_indices=(0,), position=[ABSOLUTE])).double().eval()
    x = picture(96, 96).double()
    moved = x.roll((16, 16), dims=(2, 3))
    inner = slice(8, 20)  # away from the border, where windows of both pictures see the same
    for network, same in ((model, True), (absolute, False)):
        a, b = network(x)[0], network(moved)[0]
        difference = (a[..., 4:16, 4:16] - b[..., inner, inner]).abs().max()
        assert bool(difference < 1e-12) == same


@pytest.mark.parametrize("position", POSITIONS.values(), ids=POSITIONS.keys())
@pytest.mark.parametrize("with_cp", [False, True])
def test_half_precision_keeps_its_dtype_and_stays_near_float32(position, with_cp: bool) -> None:
    exact = tiny(position=position, with_cp=with_cp).eval()
    x = picture(97, 61)
    expected = exact(x)

    def error(outs: tuple[torch.Tensor, ...]) -> float:
        """Largest root-mean-square difference of a stage; outputs have variance 1."""
        pairs = zip(outs, expected, strict=True)
        return max((out.float() - other).square().mean().sqrt().item() for out, other in pairs)

    for dtype, tolerance in ((torch.bfloat16, 2e-2), (torch.float16, 2e-3)):
        outs = copy.deepcopy(exact).to(dtype)(x.to(dtype))
        assert {out.dtype for out in outs} == {dtype}
        assert error(outs) < tolerance
        with torch.autocast("cpu", dtype):
            assert error(exact(x)) < tolerance


def test_a_subset_of_outputs_equals_the_outputs_of_the_whole() -> None:
    whole, part = tiny(), tiny(out_indices=(0, 2))
    part.load_state_dict(
        {k: v for k, v in whole.state_dict().items() if k in part.state_dict()}, strict=True
    )
    x = picture(50, 70)
    for a, b in zip((whole(x)[0], whole(x)[2]), part(x), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("position", "count"),
    [
        ([RELATIVE], 27_520_698),
        ([ABSOLUTE, RELATIVE], 27_821_754),
        ([ABSOLUTE], 27_798_432),
        ([], 27_497_376),
    ],
)
def test_parameter_counts_of_swin_t(position, count: int) -> None:
    with torch.device("meta"):
        model = RelPosSwin(position=position)
    assert sum(parameter.numel() for parameter in model.parameters()) == count


def test_nothing_but_parameters_is_saved() -> None:
    model = tiny(position=[ABSOLUTE, SINES, RELATIVE], mask_padding=True)
    model(picture(40, 40))
    names = {name for name, _ in model.named_parameters()}
    assert set(model.state_dict()) == names
    assert "position.absolute_table.absolute_pos_embed" in names
    table = "stages.0.blocks.1.attn.position.relative_bias.relative_position_bias_table"
    assert table in names


def test_copies_and_pickles_give_the_same_numbers() -> None:
    model = loud(tiny(position=[ABSOLUTE, RELATIVE])).eval()
    x = picture(50, 70)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        for a, b in zip(model(x), other(x), strict=True):
            assert torch.equal(a, b)


def test_the_result_does_not_depend_on_the_map_before() -> None:
    model = loud(tiny(position=[ABSOLUTE, SINES, RELATIVE])).eval()
    wide, tall = picture(44, 100), picture(100, 44)
    first = model(wide)
    model(tall)
    for a, b in zip(first, model(wide), strict=True):
        assert torch.equal(a, b)


def test_a_batch_gives_each_picture_what_it_gets_alone() -> None:
    model = loud(tiny(position=[ABSOLUTE, RELATIVE])).double().eval()
    x = picture(50, 70, batch=3).double()
    for i in range(3):
        for a, b in zip(model(x), model(x[i : i + 1]), strict=True):
            torch.testing.assert_close(a[i : i + 1], b)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_heads": (1, 2)}, "differ in length"),
        ({"num_heads": (5, 2, 3, 6)}, "stage 0 has 12 channels, which num_heads=5"),
        ({"window_size": 0}, "window_size must be a number or .*, at least 1, got 0"),
        ({"window_size": (7, 7, 7)}, r"window_size must be .* got \(7, 7, 7\)"),
        ({"pretrain_img_size": (0, 64)}, "pretrain_img_size must be .* at least 1"),
        ({"small_map": "crop"}, "small_map must be 'pad' or 'shrink', got 'crop'"),
        ({"out_indices": (3, 1)}, "out_indices must rise"),
        ({"out_indices": ()}, "out_indices must rise"),
        ({"out_indices": (4,)}, r"out_indices \(4,\) of 4 stages"),
        ({"out_indices": (-1, 2)}, "of 4 stages"),
        ({"frozen_stages": 5}, "frozen_stages must be -1 to 4, got 5"),
        ({"position": [{"type": "RelativeBais"}]}, "did you mean 'RelativeBias'"),
        ({"position": None}, r"position must be a list of dicts \(\[\] is no encoding\), got None"),
        ({"position": RELATIVE}, "position must be a list of dicts"),
        ({"position": ["RelativeBias"]}, "every entry is a dict with a 'type', got 'RelativeBias'"),
        ({"depths": (1, 2, 0, 2)}, r"depths must be a list .* at least 1, got \(1, 2, 0, 2\)"),
        ({"num_heads": (0, 2, 4, 8)}, "num_heads must be a list of whole numbers, one per stage"),
        ({"num_heads": 3}, "num_heads must be a list .* got 3"),
        ({"out_indices": 3}, "out_indices must be a list of stage numbers, got 3"),
        ({"frozen_stages": None}, "frozen_stages must be -1 to 4, got None"),
        ({"drop_path_rate": 1.5}, "drop_path_rate must be from 0 to below 1, got 1.5"),
        ({"drop_path_rate": float("nan")}, "drop_path_rate must be from 0 to below 1, got nan"),
        ({"embed_dims": 0}, "embed_dims must be a whole number of at least 1, got 0"),
        ({"patch_size": (4, 4)}, "patch_size must be a whole number"),
        ({"mlp_ratio": 0}, "mlp_ratio must be a number above 0, got 0"),
    ],
)
def test_contradictions_are_refused_in_one_sentence(arguments, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny(**arguments)
