"""Absolute-win against timm's Hiera and SAM 2, on sizes that no window divides."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from relpos_mm.encodings import AbsoluteWin, Grid
from relpos_mm.encodings.absolute_win import split_absolute, tile
from relpos_mm.models import RelPosSwin

from .reference import FILES, error, read

FOLDER = FILES / "encodings"


def built(data: dict[str, Tensor], antialias: bool) -> AbsoluteWin:
    whole, window = data["global_embed"][None].double(), data["window_embed"][None].double()
    encoding = AbsoluteWin(
        embed_dims=whole.shape[1],
        window_size=tuple(window.shape[2:]),
        global_size=tuple(whole.shape[2:]),
        antialias=antialias,
    ).double()
    encoding.load_state_dict({"pos_embed": whole, "pos_embed_window": window})
    return encoding


def position(encoding: AbsoluteWin, size: tuple[int, int], valid=None) -> Tensor:
    """What the encoding adds to a map, ``(B, H, W, C)``."""
    channels, batch = encoding.pos_embed.shape[1], 1 if valid is None else len(valid)
    zeros = torch.zeros(batch, *size, channels, dtype=encoding.pos_embed.dtype)
    return encoding.embed(zeros, Grid(size, valid=valid)).detach()


@pytest.mark.parametrize("antialias", [True, False])
def test_both_resamplings_equal_public_code(antialias: bool) -> None:
    data = read(FOLDER / "hiera_abs_win_24x24.npz")
    ours = position(built(data, antialias), (24, 24))[0]
    assert error(ours, data["grid24" if antialias else "grid24_plain"]) < 1e-9
    data = read(FOLDER / "hiera_abs_win_40x72_crop.npz")
    ours = position(built(data, antialias), (40, 72))[0, ::5, ::7]
    assert error(ours, data["antialias" if antialias else "plain"]) < 1e-9


def test_every_reference_file(golden_dir: Path) -> None:
    folder = golden_dir / "encodings"
    wanted = (
        ("hiera_abs_win", "grid24", (24, 24), True),
        ("hiera_abs_win", "grid72", (72, 72), True),
        ("hiera_abs_win", "grid24_plain", (24, 24), False),
        ("hiera_abs_win", "grid72_plain", (72, 72), False),
        ("hiera_abs_win_40x72", "antialias", (40, 72), True),
        ("hiera_abs_win_40x72", "plain", (40, 72), False),
    )
    for name, key, size, antialias in wanted:
        data = read(folder / f"{name}.npz")
        ours = position(built(data, antialias), size)[0]
        tolerance = 1e-9 if data[key].dtype == torch.float64 else 1e-6
        assert error(ours, data[key].double()) < tolerance, key
    data = read(folder / "abs_pos_resize_antialias.npz")
    table = data["pos_embed"][:, 1:].transpose(1, 2).reshape(1, -1, 14, 14)
    encoding = built({"global_embed": table[0], "window_embed": torch.zeros(8, 7, 7)}, True)
    for key, size in (("up_32x48", (32, 48)), ("down_7x9", (7, 9))):
        assert error(position(encoding, size)[0], data[key].double()) < 1e-5, key


def test_a_pretrained_grid_becomes_the_window_as_in_vitdet(golden_dir: Path) -> None:
    data = read(golden_dir / "encodings" / "abs_pos_resize.npz")
    table = data["pos_embed"][:, 1:].double().transpose(1, 2).reshape(1, -1, 14, 14)
    encoding = AbsoluteWin(embed_dims=8, window_size=(14, 14)).double()
    encoding.load_state_dict({"absolute_pos_embed": table})
    assert not encoding.pos_embed.any()
    assert error(position(encoding, (32, 48))[0], data["tiled_32x48"].double()) < 1e-9


@pytest.mark.parametrize("size", [(56, 56), (59, 59), (118, 118), (8, 200)])
def test_any_map_is_tiled_and_cut(size: tuple[int, int]) -> None:
    encoding = AbsoluteWin(embed_dims=3, window_size=(7, 7), global_size=(5, 5))
    with torch.no_grad():
        encoding.pos_embed.zero_()
    ours = position(encoding, size)[0]
    for y, x in ((0, 0), (6, 7), (7, 6), (size[0] - 1, size[1] - 1)):
        assert torch.equal(ours[y, x], encoding.pos_embed_window[0, :, y % 7, x % 7])


@pytest.mark.parametrize("window", [(7, 7), (4, 6), (9, 9)])
def test_split_keeps_the_sum(window: tuple[int, int]) -> None:
    table = torch.randn(1, 3, 9, 13, dtype=torch.float64)
    part, rest = split_absolute(table, window)
    torch.testing.assert_close(tile(part, (9, 13)) + rest, table)
    # What repeats with the windows is in the tiled part, all of it.
    again, _ = split_absolute(rest, window)
    assert again.abs().max() < 1e-12


def test_conversion_of_a_plain_table_keeps_the_embedding() -> None:
    """B031: at the size of pre-training nothing changes."""
    table = torch.randn(1, 4, 12, 12)
    encoding = AbsoluteWin(embed_dims=4, window_size=(5, 5), global_size=(12, 12))
    state = {"stem.absolute_table.absolute_pos_embed": table}
    records = encoding.transfer(state, "stem.absolute_win.")
    assert set(state) == {"stem.absolute_win.pos_embed", "stem.absolute_win.pos_embed_window"}
    assert "sum changes" not in str(records[0])
    encoding.load_state_dict({key.rsplit(".", 1)[1]: value for key, value in state.items()})
    torch.testing.assert_close(position(encoding, (12, 12))[0].permute(2, 0, 1), table[0])


def test_a_conversion_that_changes_the_embedding_says_so() -> None:
    encoding = AbsoluteWin(embed_dims=4, window_size=(5, 5), global_size=(6, 6))
    records = encoding.transfer({"absolute_pos_embed": torch.randn(1, 4, 12, 12)}, "")
    assert "global_size=(12, 12) would keep it" in str(records[0])
    assert records[1].new_shape == (1, 4, 6, 6)


def test_wrong_channels_are_refused() -> None:
    encoding = AbsoluteWin(embed_dims=4, window_size=(5, 5))
    with pytest.raises(ValueError, match="C equal to embed_dims"):
        encoding.load_state_dict(AbsoluteWin(embed_dims=6, window_size=(5, 5)).state_dict())


def test_content_decides_where_the_global_part_ends() -> None:
    encoding = AbsoluteWin(embed_dims=4, window_size=(3, 3), global_size=(4, 4))
    both = position(encoding, (9, 10), valid=((9, 4), (5, 10)))
    for image, (height, width) in zip(both, ((9, 4), (5, 10)), strict=True):
        alone = position(encoding, (height, width))[0]
        torch.testing.assert_close(image[:height, :width], alone)


def test_swin_hands_its_window_over() -> None:
    swin = RelPosSwin(
        position=[{"type": "AbsoluteWin"}],
        window_size=5,
        depths=(1,),
        num_heads=(3,),
        out_indices=(0,),
    )
    encoding = swin.position["absolute_win"]
    assert encoding.window_size == (5, 5)
    assert sum(p.numel() for p in encoding.parameters()) == 96 * (25 + 14 * 14)
