"""CrossFormer's dynamic position bias."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from relpos_mm.encodings import DynamicBias, Grid
from relpos_mm.encodings.offsets import offset_set
from relpos_mm.models import attend

from .layers import tokens_of
from .reference import FILES, error, read

FOLDER = FILES / "encodings"


def loaded(data: dict[str, Tensor], **sizes: object) -> DynamicBias:
    encoding = DynamicBias(**sizes).double()
    encoding.load_state_dict({key[2:]: value for key, value in data.items() if key[:2] == "w."})
    return encoding


@pytest.mark.parametrize("path", sorted(FOLDER.glob("dpb_[0-9]*.npz")), ids=lambda path: path.stem)
def test_attention_equals_crossformer(path: Path) -> None:
    data = read(path)
    channels, heads, height, width, residual = data["meta_dim_heads_gh_gw_residual"].tolist()
    encoding = loaded(data, embed_dims=channels, num_heads=heads, residual=bool(residual))
    grid = Grid((height, width))
    offsets, index = offset_set(grid.q, grid.k)
    assert torch.equal(offsets, data["offsets"])
    assert torch.equal(index, data["index"].long())
    assert error(encoding(offsets.double()), data["table"]) < 1e-9
    qkv = F.linear(data["x"].double(), data["qkv_w"].double(), data["qkv_b"].double())
    q, k, v = qkv.unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    assert error(encoding.bias(q, k, grid, 1.0)[0], data["bias"]) < 1e-9
    for hidden, name in ((None, "out"), (data["mask_key"], "out_masked")):
        out = tokens_of(attend(q, k, v, [encoding], grid, key_padding_mask=hidden))
        out = F.linear(out, data["proj_w"].double(), data["proj_b"].double())
        assert error(out, data[name]) < 1e-9


def test_bias_saturates_along_a_ray_as_measured() -> None:
    data = read(FOLDER / "dpb_ray.npz")
    encoding = loaded(data, embed_dims=96, num_heads=3)
    table = encoding(data["offsets"].double())
    assert error(table, data["table"]) < 1e-9
    far = data["offsets"].norm(dim=1) > 100
    assert (table[far] - table[far][0]).abs().max() < 1e-3


@pytest.mark.parametrize(
    ("embed_dims", "hidden", "width"),
    [(96, "code", 6), (96, "paper", 24), (96, 10, 10), (32, "code", 2), (8, "code", 4)],
)
def test_hidden_width(embed_dims: int, hidden: str | int, width: int) -> None:
    encoding = DynamicBias(embed_dims=embed_dims, num_heads=2, hidden=hidden)
    assert encoding.pos_proj.weight.shape == (width, 2)


def test_parameters_of_swin_t() -> None:
    """24,234 with the code's width and 298,698 with the paper's."""
    blocks = [(96 * 2**i, 3 * 2**i) for i, depth in enumerate((2, 2, 6, 2)) for _ in range(depth)]
    for hidden, expected in (("code", 24_234), ("paper", 298_698)):
        built = [DynamicBias(embed_dims=c, num_heads=h, hidden=hidden) for c, h in blocks]
        assert sum(p.numel() for encoding in built for p in encoding.parameters()) == expected


def test_matrices_decay_and_the_rest_does_not() -> None:
    encoding = DynamicBias(embed_dims=96, num_heads=3)
    decayed = {name for name, _ in encoding.named_parameters()} - set(encoding.no_decay())
    assert decayed == {f"{name}.weight" for name in ("pos_proj", "pos1.2", "pos2.2", "pos3.2")}


def test_step_counts_only_on_request() -> None:
    wide = Grid((3, 4), step=(2.0, 3.0))
    for use_step, same in ((False, True), (True, False)):
        encoding = DynamicBias(embed_dims=64, num_heads=2, use_step=use_step)
        biases = [encoding.bias(None, None, grid, 1.0) for grid in (Grid((3, 4)), wide)]
        assert torch.equal(*biases) == same


def test_offsets_stay_exact_in_a_bfloat16_model() -> None:
    """The network of a bfloat16 model computes in float32: 320 columns stay 639 offsets."""
    encoding = DynamicBias(embed_dims=64, num_heads=2).bfloat16()
    torch.nn.init.normal_(encoding.pos_proj.weight)
    with torch.autocast("cpu", torch.bfloat16):
        bias = encoding.bias(None, None, Grid((1, 320)), 1.0)
    exact = encoding.double().bias(None, None, Grid((1, 320)), 1.0)
    assert bias.dtype == torch.float32
    assert error(bias.double(), exact) < 1e-5


@pytest.mark.parametrize("hidden", [0, "wide"])
def test_unknown_width_is_refused(hidden: object) -> None:
    with pytest.raises(ValueError, match="hidden must be"):
        DynamicBias(embed_dims=64, num_heads=2, hidden=hidden)
