"""PEG and LePE against Twins and CSWin, and where the Swin host calls them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from relpos_mm.encodings import ConvPosition, Grid, LocalEnhanced
from relpos_mm.models import RelPosSwin, attend

from .reference import FILES, error, read

FOLDER = FILES / "encodings"


def check_peg(path: Path) -> float:
    data = read(path)
    height, width = data["meta_H_W"].tolist()
    batch, _, channels = data["x"].shape
    encoding = ConvPosition(embed_dims=channels)
    encoding.load_state_dict({"proj.weight": data["weight"], "proj.bias": data["bias"]})
    x = data["x"].double().view(batch, height, width, channels)
    out = encoding.double().embed(x, Grid((height, width)))
    return error(out.flatten(1, 2), data["out"].double())


def check_lepe(path: Path) -> float:
    """The convolution per stripe, from stripes and from the map, and the attention's output."""
    data = read(path)
    side, _, _, heads, height, width = data["meta_res_idx_split_heads_hsp_wsp"].tolist()
    channels = data["weight"].shape[0]
    batch = data["qkv"].shape[1]
    encoding = LocalEnhanced(embed_dims=channels, local=True, window_size=(height, width))
    encoding.load_state_dict({"get_v.weight": data["weight"], "get_v.bias": data["bias"]})
    encoding.double()

    def cut(tokens: Tensor) -> Tensor:
        """(B, N, C) -> (B * stripes, h, N of a stripe, d)."""
        x = tokens.view(batch, side // height, height, side // width, width, heads, -1)
        return x.permute(0, 1, 3, 5, 2, 4, 6).reshape(-1, heads, height * width, channels // heads)

    grid = Grid((height, width))
    expected = data["lepe"].double()
    errors = [error(encoding.value(data["v_windows"].double(), grid), expected)]
    qkv = data["qkv"].double()
    v = qkv[2].unflatten(-1, (heads, -1)).transpose(1, 2)
    of_map = encoding.value(v, Grid((side, side))).transpose(1, 2).flatten(2)
    errors.append(error(cut(of_map), expected))
    out = attend(*(cut(tokens) for tokens in qkv), [encoding], grid)
    errors.append(error(out, cut(data["out"])))
    return max(errors)


@pytest.mark.parametrize("name", ["peg_7x7", "peg_5x12"])
def test_peg_equals_twins(name: str) -> None:
    assert check_peg(FOLDER / f"{name}.npz") < 1e-6


def test_stripes_equal_cswin() -> None:
    assert check_lepe(FOLDER / "lepe_vertical_stripes_8x8.npz") < 1e-6


def test_every_reference_file(golden_dir: Path) -> None:
    folder = golden_dir / "encodings"
    errors = {path.name: check_peg(path) for path in folder.glob("peg_*")}
    errors |= {path.name: check_lepe(path) for path in folder.glob("lepe_*")}
    assert len(errors) >= 4
    assert {name: value for name, value in errors.items() if value > 1e-6} == {}


def test_peg_acts_once_per_stage_after_the_first_block() -> None:
    swin = RelPosSwin(
        embed_dims=12,
        depths=(3, 2),
        num_heads=(1, 2),
        out_indices=(0, 1),
        position=[{"type": "ConvPosition"}],
    ).eval()
    names = [name for name in swin.state_dict() if "conv_position" in name]
    assert names == [
        f"stages.{i}.position.conv_position.proj.{p}" for i in (0, 1) for p in ("weight", "bias")
    ]
    blocks, encoding = swin.stages[0].blocks, swin.stages[0].position["conv_position"]
    seen: dict[int, list[Tensor]] = {}
    for j, block in enumerate(blocks):
        block.register_forward_hook(lambda _, args, out, j=j: seen.update({j: [args[0], out]}))
    swin(torch.randn(1, 3, 40, 40))
    torch.testing.assert_close(seen[1][0], encoding.embed(seen[0][1], Grid((10, 10))))
    assert torch.equal(seen[2][0], seen[1][1])


def test_peg_in_every_block() -> None:
    position = [{"type": "ConvPosition", "site": "block"}]
    swin = RelPosSwin(
        embed_dims=12, depths=(2,), num_heads=(1,), out_indices=(0,), position=position
    )
    assert sum("conv_position.proj.weight" in name for name in swin.state_dict()) == 2


def test_values_are_convolved_on_the_map_not_in_shifted_windows() -> None:
    """Rolled windows hold both ends of the map: the last rows would change the first ones."""
    torch.manual_seed(0)
    swin = RelPosSwin(
        embed_dims=12,
        depths=(2,),
        num_heads=(1,),
        out_indices=(0,),
        position=[{"type": "LocalEnhanced"}],
    ).eval()
    attention = swin.stages[0].blocks[1].attn
    x = torch.randn(1, 14, 14, 12)
    changed = x.clone()
    changed[:, -2:] += 1
    with torch.no_grad():
        torch.nn.init.zeros_(attention.qkv.weight[:24])  # q and k: attention is the plain mean
        torch.nn.init.zeros_(attention.qkv.bias)
        grid = Grid((14, 14))
        difference = attention(changed, grid) - attention(x, grid)
    assert difference[:, :4].abs().max() < 1e-6
    assert difference[:, -2:].abs().max() > 1e-3


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match="kernel_size must be odd"):
        ConvPosition(embed_dims=4, kernel_size=2)
    with pytest.raises(ValueError, match="kernel_size must be odd"):
        LocalEnhanced(embed_dims=4, kernel_size=4)
    with pytest.raises(ValueError, match="site must be"):
        ConvPosition(embed_dims=4, site="stem")
    with pytest.raises(ValueError, match="cuts at unshifted windows"):
        RelPosSwin(position=[{"type": "LocalEnhanced", "local": True}])
    with pytest.raises(ValueError, match="a query each"):
        LocalEnhanced(embed_dims=4).value(torch.zeros(1, 1, 8, 4), Grid((2, 2), k=(2, 4)))
    with pytest.raises(ValueError, match="2 regions for 3 images"):
        ConvPosition(embed_dims=4).embed(
            torch.zeros(3, 4, 4, 4), Grid((4, 4), valid=((2, 2), (3, 3)))
        )


def test_decay_follows_the_releases() -> None:
    assert ConvPosition(embed_dims=4).no_decay() == ("proj.weight", "proj.bias")
    assert LocalEnhanced(embed_dims=4).no_decay() == ()


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("ConvPosition", 14_400),
        ("LocalEnhanced", 44_160),
        ("AbsoluteWin", 23_520),
        ("AxialRope", 0),
        ("MixedRope", 4_416),
        ("ContextualRpe", 18_816),
    ],
)
def test_parameters_on_swin_t(name: str, count: int) -> None:
    with torch.device("meta"):
        swin = RelPosSwin(position=[{"type": name}])
    own = {k: v for k, v in swin.named_parameters() if ".position." in f".{k}"}
    assert sum(parameter.numel() for parameter in own.values()) == count
