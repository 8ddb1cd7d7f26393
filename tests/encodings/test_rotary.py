"""Rotary encodings against rope-vit, DINOv3, timm and SAM 2."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from relpos_mm.encodings import AxialRope, Grid, MixedRope
from relpos_mm.encodings.mixed_rope import mixed_frequencies
from relpos_mm.encodings.rotary import Rotary, token_positions
from relpos_mm.models import attend

from .case import CHANNELS, HEADS, Case
from .reference import FILES, error, facts, read
from .sweep import check_dtypes, check_padding, check_translation

FOLDER = FILES / "encodings"
WIDE = {"embed_dims": 64, "num_heads": 2}  # head width 32


def angles(encoding: Rotary, size: tuple[int, int]) -> Tensor:
    """Angles of all tokens, ``(N, d / 2)``, of the first head."""
    grid, like = Grid(size), torch.zeros(1)
    positions = token_positions(grid, "q", encoding.normalize_coords, encoding.ref_size, like)
    if encoding.axis_order == "xy":
        positions = positions.flip(-1)
    return encoding.angles(positions)[0, 0]


def check_rope_vit(path: Path) -> float:
    data = read(path)
    height, width, heads, head_dim, theta = data["meta_H_W_heads_d_theta"].tolist()
    sizes = {"embed_dims": heads * head_dim, "num_heads": heads, "theta": theta}
    if "freqs" in data:
        encoding: Rotary = MixedRope(**sizes)
        encoding.load_state_dict({"rope_freqs": data["freqs"]})
    else:
        encoding = AxialRope(**sizes)
    q, k = encoding.rotate(data["q"], data["k"], Grid((height, width)))
    logits = (q @ k.transpose(-2, -1))[0]
    pairs = ((q, data["q_rot"]), (k, data["k_rot"]), (logits, data["logits"]))
    return max(error(*pair) for pair in pairs)


def check_swin(path: Path) -> float:
    """Window attention without a bias table, with and without the shift's mask."""
    data = read(path)
    heads, channels = data["rope_freqs"].shape[1], data["x"].shape[2]
    sizes = {"embed_dims": channels, "num_heads": heads}
    if "mixed" in path.name:
        encoding: Rotary = MixedRope(**sizes)
        encoding.load_state_dict({"rope_freqs": data["rope_freqs"]})
    else:
        encoding = AxialRope(**sizes, theta=50.0)
    qkv = F.linear(data["x"], data["w.qkv.weight"], data["w.qkv.bias"])
    qkv = qkv.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    errors = []
    for name, mask in (("out", None), ("out_masked", ~data["masked"][:, None])):
        for impl in ("eager", "fused"):
            out = attend(*qkv, [encoding], Grid((7, 7)), mask=mask, impl=impl)
            out = out.transpose(1, 2).flatten(2)
            out = F.linear(out, data["w.proj.weight"], data["w.proj.bias"])
            errors.append(error(out, data[name]))
    return max(errors)


@pytest.mark.parametrize("name", ["rope_axial_5x9", "rope_mixed_4x10"])
def test_rotation_equals_rope_vit(name: str) -> None:
    assert check_rope_vit(FOLDER / f"{name}.npz") < 1e-6


def test_window_attention_equals_rope_vit() -> None:
    assert check_swin(FOLDER / "swin_rope_mixed_7x7.npz") < 1e-5


def test_every_reference_file(golden_dir: Path) -> None:
    folder = golden_dir / "encodings"
    plain = [*folder.glob("rope_axial_*"), *folder.glob("rope_mixed_[0-9]*")]
    errors = {path.name: check_rope_vit(path) for path in plain}
    errors |= {path.name: check_swin(path) for path in folder.glob("swin_rope_*")}
    assert len(errors) >= 6
    assert {name: value for name, value in errors.items() if value > 1e-5} == {}


def test_initial_frequencies_equal_rope_vit() -> None:
    data = read(FOLDER / "rope_mixed_init.npz")
    for turns, name in ((data["angles"][:, 0], "rotated"), (torch.zeros(4), "unrotated")):
        assert error(mixed_frequencies(32, 10.0, turns), data[f"freqs_{name}"]) < 1e-6


def test_random_axes_differ_between_heads() -> None:
    torch.manual_seed(0)
    frequencies = MixedRope(embed_dims=48, num_heads=3).rope_freqs
    assert not torch.allclose(frequencies[:, 0], frequencies[:, 1])
    assert not MixedRope(embed_dims=48, num_heads=3, random_axes=False).rope_freqs[1, :, :4].any()


@pytest.mark.parametrize("normalize", ["separate", "min", "max"])
@pytest.mark.parametrize("size", [(6, 6), (5, 9)])
def test_coordinates_equal_dinov3(normalize, size: tuple[int, int]) -> None:
    data = read(FOLDER / "rope_dinov3.npz")
    encoding = AxialRope(**WIDE, normalize_coords=normalize, axis_order="yx", pairing="half")
    ours = angles(encoding, size).repeat(1, 2)  # both channels of a pair, halves apart
    name = f"{normalize}_{size[0]}x{size[1]}"
    assert error(ours.sin(), data[f"{name}.sin"]) < 1e-6
    assert error(ours.cos(), data[f"{name}.cos"]) < 1e-6
    if name == "separate_5x9":
        assert (
            error(encoding.rotate(data["q"], data["q"], Grid(size))[0], data[f"q_rot_{name}"])
            < 1e-6
        )


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ij", {"axis_order": "yx"}),
        ("xy", {}),
        ("ref4", {"axis_order": "yx", "ref_size": (4, 4), "theta": 10000.0}),
    ],
)
def test_axis_orders_equal_timm(name: str, options) -> None:
    data = read(FOLDER / "rope_timm_axial.npz")
    encoding = AxialRope(**WIDE, **options)
    ours = angles(encoding, (6, 9)).repeat_interleave(2, dim=1)  # neighbours
    assert error(ours.sin(), data[f"{name}.sin"]) < 1e-6
    assert error(ours.cos(), data[f"{name}.cos"]) < 1e-6
    if name == "xy":
        assert (
            error(encoding.rotate(data["q"], data["q"], Grid((6, 9)))[0], data["q_rot_xy"]) < 1e-6
        )


def test_frames_of_keys_share_angles_as_in_sam2() -> None:
    path = FOLDER / "rope_sam2_repeat_keys.npz"
    data, meta = read(path), read(path)["meta_endx_endy"].tolist()
    q, k = AxialRope(**WIDE, theta=10000.0).rotate(data["q"], data["k"], Grid((meta[1], meta[0])))
    assert error(q, data["q_rot"]) < 1e-6
    assert error(k, data["k_rot"]) < 1e-6


def test_tokens_that_fit_no_grid_are_refused() -> None:
    q = torch.zeros(1, 2, 7, 32)
    with pytest.raises(ValueError, match="7 tokens do not fit a grid of 6"):
        AxialRope(**WIDE).rotate(q, q, Grid((2, 3)))


@pytest.mark.parametrize("cls", [AxialRope, MixedRope])
@pytest.mark.parametrize("autocast", [False, True])
def test_every_column_of_a_wide_map_is_its_own_place_in_bfloat16(cls, autocast: bool) -> None:
    """Bfloat16 counts to 256 only: coordinates and angles must never pass through it."""
    torch.manual_seed(0)
    encoding = cls(**WIDE).bfloat16()
    x = torch.ones(1, 2, 40 * 320, 32, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        turned = encoding.rotate(x, x, Grid((40, 320)))[0]
    assert turned.dtype == torch.bfloat16
    row = turned[0, 0].view(40, 320, 32)[17]
    assert len(row.unique(dim=0)) == 320
    exact = encoding.float().rotate(x.float(), x.float(), Grid((40, 320)))[0]
    assert (turned.float() - exact).abs().max() < 0.01


@pytest.mark.parametrize("cls", [AxialRope, MixedRope])
@pytest.mark.parametrize(
    "options",
    [{"normalize_coords": name} for name in ("separate", "min", "max")] + [{"ref_size": (4, 4)}],
    ids=str,
)
def test_normalised_positions_need_the_valid_region(cls, options) -> None:
    # Frequencies of unit variance turn by many circles, which half precision hits coarsely.
    coarse = 20 if cls is MixedRope else 1
    case = Case(cls, {"embed_dims": CHANNELS, "num_heads": HEADS, **options}, coarse=coarse)
    check_padding(case)
    check_translation(case)
    check_dtypes(case)


def test_pooled_queries_stand_among_the_keys() -> None:
    encoding = AxialRope(**WIDE)
    grid = Grid((2, 3), k=(4, 6))
    q, k = torch.randn(1, 2, 6, 32), torch.randn(1, 2, 24, 32)
    turned, _ = encoding.rotate(q, k, grid)
    among_keys = torch.zeros(1, 2, 4, 6, 32)
    among_keys[:, :, ::2, ::2] = q.view(1, 2, 2, 3, 32)
    expected, _ = encoding.rotate(among_keys.flatten(2, 3), k, Grid((4, 6)))
    expected = expected.view(1, 2, 4, 6, 32)[:, :, ::2, ::2].flatten(2, 3)
    torch.testing.assert_close(turned, expected)


@pytest.mark.parametrize("cls", [AxialRope, MixedRope])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embed_dims": 12}, "multiple of 4"),
        ({"axis_order": "hw"}, "axis_order='hw' is none of"),
        ({"pairing": "complex"}, "pairing='complex' is none of"),
        ({"normalize_coords": "mean"}, "normalize_coords='mean' is none of"),
        ({"normalize_coords": "min", "ref_size": (4, 4)}, "ref_size rescales indices"),
    ],
)
def test_wrong_options_are_refused(cls, options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cls(**{**WIDE, **options})


def test_frequencies_are_not_decayed() -> None:
    assert MixedRope(**WIDE).no_decay() == ("rope_freqs",)
    assert facts(FOLDER / "rope_mixed_init.npz") == {}
