"""Fixed numbers of the public implementations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from relpos_mm.encodings import AbsoluteTable, Grid, RelativeBias, Sinusoid2d
from relpos_mm.encodings.buckets import product_index
from relpos_mm.encodings.resize import resize_absolute, resize_bias_table

FILES = Path(__file__).parents[1] / "data" / "files" / "encodings"


def golden(name: str) -> dict[str, Tensor]:
    with np.load(FILES / f"{name}.npz") as arrays:
        return {key: torch.from_numpy(arrays[key]) for key in arrays}


@pytest.mark.parametrize("normalize", [True, False])
def test_sines_equal_detr(normalize: bool) -> None:
    data = golden("sine_detr_norm" if normalize else "sine_detr_raw")
    rows = (~data["pad_mask"]).any(2).sum(1)
    columns = (~data["pad_mask"]).any(1).sum(1)
    valid = torch.stack((rows, columns), dim=1)
    encoding = Sinusoid2d(embed_dims=32, form="detr", normalize=normalize)
    ours = encoding.position_map(Grid((7, 9), valid=valid))
    torch.testing.assert_close(ours.permute(0, 3, 1, 2), data["pos"], atol=1e-5, rtol=1e-5)


def test_sines_equal_timm() -> None:
    data = golden("sine_timm_6x9")
    grid = Grid((6, 9))

    def ours(**options: object) -> Tensor:
        return Sinusoid2d(embed_dims=32, **options).position_map(grid)[0]

    close = {"atol": 1e-5, "rtol": 1e-5}
    torch.testing.assert_close(ours().flatten(0, 1), data["plain"], **close)
    torch.testing.assert_close(ours(split_axes=True).flatten(0, 1), data["interleave"], **close)
    # timm's "reverse" turns the map's shape around too, so it lists tokens column by column and
    # fits no row-major 6 x 9 map; token by token it is our order with columns first.
    by_column = ours(axis_order="xy").transpose(0, 1).flatten(0, 1)
    torch.testing.assert_close(by_column, data["reverse"], **close)


def test_absolute_resize_equals_detectron2() -> None:
    data = golden("abs_pos_resize")
    encoding = AbsoluteTable(embed_dims=8, grid_size=(14, 14)).double()
    table = data["pos_embed"][:, 1:].double().transpose(1, 2).reshape(1, 8, 14, 14)
    encoding.load_state_dict({"absolute_pos_embed": table})
    for size, name in (((32, 48), "naive_32x48"), ((14, 14), "same_14x14")):
        added = encoding.embed(torch.zeros(1, *size, 8, dtype=torch.float64), Grid(size))
        torch.testing.assert_close(added[0], data[name].double(), atol=1e-9, rtol=1e-9)


def test_absolute_resize_equals_swin() -> None:
    data = golden("swin_tables_w7")
    resized = resize_absolute(data["absolute_pos_embed"].double(), (25, 33))
    torch.testing.assert_close(resized, data["absolute_pos_embed_resized"], atol=1e-10, rtol=0)


@pytest.mark.parametrize("window", [4, 5, 8, 12])
def test_table_resize_equals_swin(window: int) -> None:
    data = golden("swin_tables_w7")
    resized = resize_bias_table(data["table"].double(), (7, 7), (window, window))
    expected = data[f"table_layers1_blocks0_resized_to_window{window}"]
    torch.testing.assert_close(resized, expected, atol=1e-10, rtol=0)


def test_index_and_gather_equal_swin() -> None:
    data = golden("swin_tables_w7")
    index = product_index((7, 7), (7, 7), (7, 7))
    assert torch.equal(index, data["relative_position_index"].long())
    encoding = RelativeBias(num_heads=3, window_size=(7, 7)).double()
    encoding.load_state_dict({"relative_position_bias_table": data["gathered_table"]})
    tokens = torch.zeros(1, 3, 49, 1)
    gathered = encoding.bias(tokens, tokens, Grid((7, 7)), 1.0)
    assert torch.equal(gathered[0], data["gathered_bias"])
