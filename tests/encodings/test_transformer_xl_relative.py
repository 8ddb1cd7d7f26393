"""Transformer-XL's projected sinusoids."""

from __future__ import annotations

import pytest
import torch

from relpos_mm.encodings import Grid, TransformerXLRelative
from relpos_mm.encodings.transformer_xl_relative import offset_waves
from relpos_mm.models import attend

from .reference import FILES, error, read

DATA = FILES / "encodings" / "transformerxl_bi_1d.npz"


def test_sinusoids_equal_xlnet() -> None:
    table = read(DATA)["pos_table"]  # offsets 8 down to -7
    waves, index = offset_waves(8, 8, table.shape[1], 10000.0)
    assert torch.equal(waves.flip(0), table[1:])
    assert index[7, 0] == 14
    assert index[0, 7] == 0


@pytest.mark.parametrize("impl", ["eager", "fused"])
@pytest.mark.parametrize("factored", [True, False])
@pytest.mark.parametrize("axis", [0, 1])
def test_one_line_equals_xlnet(axis: int, factored: bool, impl: str) -> None:
    """The other axis adds a constant per query, whatever its half of the projection holds."""
    data = read(DATA)
    length, channels = data["x"].shape
    heads = data["w_q"].shape[1]
    encoding = TransformerXLRelative(
        embed_dims=channels, num_heads=heads, pos_dims=2 * channels, factored=factored
    ).double()
    encoding.r_w_bias.data.copy_(data["u_r_w_bias"])
    encoding.r_r_bias.data.copy_(data["v_r_r_bias"])
    half = slice(axis * channels, (axis + 1) * channels)
    encoding.r_net.weight.data[:, half] = data["w_r"].double().flatten(1).t()
    x = data["x"].double()
    q, k, v = (torch.einsum("lc,chd->hld", x, data[f"w_{n}"].double())[None] for n in "qkv")
    grid = Grid((length, 1) if axis == 0 else (1, length))
    out = attend(q, k, v, [encoding], grid, impl=impl)[0].transpose(0, 1)
    assert error(out, data["context"]) < 1e-9
    eye = torch.eye(length, dtype=torch.float64).expand(1, heads, -1, -1)
    assert error(attend(q, k, eye, [encoding], grid, impl=impl)[0], data["probs"]) < 1e-9


def test_parameters_of_swin_t() -> None:
    blocks = [(96 * 2**i, 3 * 2**i) for i, depth in enumerate((2, 2, 6, 2)) for _ in range(depth)]
    built = [TransformerXLRelative(embed_dims=c, num_heads=h) for c, h in blocks]
    assert sum(p.numel() for encoding in built for p in encoding.parameters()) == 2_165_376


def test_angles_stay_exact_in_a_bfloat16_model() -> None:
    """639 offsets have 639 different sinusoids, computed in float32 under autocast too."""
    offset_waves.cache_clear()
    with torch.autocast("cpu", torch.bfloat16):
        waves, _ = offset_waves(320, 320, 16, 10000.0)
    assert waves.dtype == torch.float32
    assert len(waves.unique(dim=0)) == 639
    offset_waves.cache_clear()
    assert torch.equal(waves, offset_waves(320, 320, 16, 10000.0)[0])


def test_width_without_two_halves_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 4"):
        TransformerXLRelative(embed_dims=6, num_heads=1)
    assert TransformerXLRelative(embed_dims=6, num_heads=1, pos_dims=8).r_net.weight.shape == (6, 8)
