"""Swin V2's log-spaced continuous bias and cosine attention."""

from __future__ import annotations

import copy
import io
from math import log
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from mmengine.runner.checkpoint import get_state_dict, load_state_dict
from torch import Tensor, nn

from relpos_mm.encodings import Grid, LogCoordBias, position_modules
from relpos_mm.encodings.log_coord_bias import log_coords, reference_of
from relpos_mm.encodings.precision import call_wide
from relpos_mm.models import RelPosSwin, attend

from .layers import tokens_of
from .reference import FILES, error, read

FOLDER = FILES / "encodings"


def loaded(data: dict[str, Tensor], window: tuple[int, int], **options: object) -> LogCoordBias:
    encoding = LogCoordBias(num_heads=len(data["w2"]), window_size=window, **options).double()
    state = {
        "cpb_mlp.0.weight": data["w1"],
        "cpb_mlp.0.bias": data["b1"],
        "cpb_mlp.2.weight": data["w2"],
    }
    if encoding.cosine:
        state["logit_scale"] = data["logit_scale"]
    encoding.load_state_dict(state)
    return encoding


@pytest.mark.parametrize(
    "path", sorted(FOLDER.glob("swinv2_cpb_w*.npz")), ids=lambda path: path.stem
)
def test_attention_equals_swin_v2(path: Path) -> None:
    data = read(path)
    height, width, *reference = data["meta_ws_pre"].tolist()
    encoding = loaded(data, (height, width), pretrained_window_size=reference, cosine=True)
    grid = Grid((height, width))
    coords, _ = log_coords(grid.q, grid.k, encoding.pretrained_window_size)
    assert error(coords.view_as(data["coords"]), data["coords"]) < 1e-6
    assert error(call_wide(encoding.cpb_mlp, coords), data["table_raw"]) < 1e-5
    channels = data["x"].shape[2]
    bias = torch.cat((data["q_bias"], torch.zeros(channels), data["v_bias"])).double()
    qkv = F.linear(data["x"].double(), data["qkv_w"].double(), bias)
    q, k, v = qkv.unflatten(2, (3, len(data["w2"]), -1)).permute(2, 0, 3, 1, 4)
    if "bias" in data:
        assert error(encoding.bias(q, k, grid, 1.0)[0], data["bias"].double()) < 1e-5
    masked = torch.where(data["masked"], -100.0, 0.0).double()[:, None]
    for mask, name in ((None, "out"), (masked, "out_masked")):
        out = tokens_of(attend(q, k, v, [encoding], grid, mask=mask))
        out = F.linear(out, data["proj_w"].double(), data["proj_b"].double())
        assert error(out, data[name]) < 1e-5


def test_a_larger_window_keeps_the_meaning_of_an_offset() -> None:
    data = read(FOLDER / "swinv2_cpb_8_to_12.npz")
    for side in (8, 12):
        encoding = loaded(data, (side, side), pretrained_window_size=8)
        coords, _ = log_coords((side, side), (side, side), encoding.pretrained_window_size)
        table = call_wide(encoding.cpb_mlp, coords)
        expected = data[f"table{side}"]
        sizes = (2 * side - 1, 2 * side - 1, -1)

        assert error((16 * table.sigmoid()).view(sizes), expected) < 1e-9


def carried(source: LogCoordBias, target: LogCoordBias, how: str) -> LogCoordBias:
    """The target after loading the source's checkpoint by one of the usual ways."""
    state = get_state_dict(source) if how == "mmengine" else source.state_dict()
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    load_state_dict(target, state) if how == "mmengine" else target.load_state_dict(state)
    return target


@pytest.mark.parametrize("how", ["torch", "mmengine"])
def test_reference_window_travels_in_checkpoints(how: str) -> None:
    source = LogCoordBias(num_heads=2, window_size=(8, 8))
    state = source.state_dict()
    assert set(state) == {name for name, _ in source.named_parameters()}
    target = carried(source, LogCoordBias(num_heads=2, window_size=(12, 12)), how)
    assert target.pretrained_window_size == (8, 8)
    small, large = (encoding.bias(None, None, Grid((1, 8)), 1.0) for encoding in (source, target))
    assert torch.equal(small, large)
    assert carried(target, copy.deepcopy(target), how).pretrained_window_size == (8, 8)


def test_reference_window_of_the_config_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []
    name = "relpos_mm.encodings.log_coord_bias.print_log"
    monkeypatch.setattr(name, lambda message, **_: logged.append(message))
    source = LogCoordBias(num_heads=2, window_size=(8, 8))
    target = LogCoordBias(num_heads=2, window_size=(12, 12), pretrained_window_size=(6, 6))
    assert carried(source, target, "torch").pretrained_window_size == (6, 6)
    assert len(logged) == 1
    assert "(8, 8) in the checkpoint, (6, 6) in the config is used" in logged[0]


def test_a_missing_reference_window_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain dicts have no metadata: the run says which reference it takes."""
    logged: list[str] = []
    name = "relpos_mm.encodings.log_coord_bias.print_log"
    monkeypatch.setattr(name, lambda message, **_: logged.append(message))
    state = LogCoordBias(num_heads=2, window_size=(8, 8)).state_dict()
    for given, messages in ((None, 1), ((8, 8), 0)):
        logged.clear()
        options = {"num_heads": 2, "window_size": (12, 12), "pretrained_window_size": given}
        LogCoordBias(**options).load_state_dict(dict(state))
        assert len(logged) == messages
        assert all("(12, 12) is used" in message for message in logged)


def test_reference_window_travels_with_a_whole_backbone() -> None:
    sizes = {"embed_dims": 16, "depths": (1, 1), "num_heads": (1, 2), "out_indices": (0, 1)}
    position = [{"type": "LogCoordBias"}]
    small, large = (
        RelPosSwin(**sizes, window_size=(side, side), position=position, pretrain_img_size=64)
        for side in (4, 6)
    )
    holder = nn.ModuleDict({"backbone": large})
    load_state_dict(holder, get_state_dict(nn.ModuleDict({"backbone": small})))
    found = position_modules(large).values()
    assert [encoding.pretrained_window_size for encoding in found] == [(4, 4), (4, 4)]


def test_reference_window_of_a_foreign_file() -> None:
    """From the saved coordinates, or from what is known of the file."""
    state = LogCoordBias(num_heads=2, window_size=(8, 6)).state_dict()
    for source, window in (({"window_size": (9, 9)}, (9, 9)), (None, (12, 12))):
        target = LogCoordBias(num_heads=2, window_size=(12, 12))
        assert target.transfer(dict(state), "", source=source) == []
        assert target.pretrained_window_size == window
    coords = log_coords((8, 6), (8, 6), (5, 4))[0].view(1, 15, 11, 2)
    state["relative_coords_table"] = coords
    target = LogCoordBias(num_heads=2, window_size=(12, 12))
    target.load_state_dict(dict(state))  # a plain dict, as foreign files give it
    assert target.pretrained_window_size == (5, 4)
    with pytest.raises(ValueError, match="relative_coords_table"):
        reference_of(coords * 2)


def test_published_coordinates_name_their_reference() -> None:
    for path in FOLDER.glob("swinv2_cpb_w*.npz"):
        data = read(path)
        height, width, *reference = data["meta_ws_pre"].tolist()
        expected = tuple(reference) if max(reference) else (height, width)
        assert reference_of(data["coords"].unsqueeze(0)) == expected


def test_a_side_of_one_does_not_divide_by_zero() -> None:
    for options in ({}, {"pretrained_window_size": (1, 1)}):
        encoding = LogCoordBias(num_heads=2, window_size=(1, 7), **options)
        bias = encoding.bias(None, None, Grid((1, 7)), 1.0)
        assert torch.isfinite(bias).all()
        bias.sum().backward()
        assert all(torch.isfinite(p.grad).all() for p in encoding.parameters())


def test_parameters_of_swin_t() -> None:
    blocks = [3 * 2**i for i, depth in enumerate((2, 2, 6, 2)) for _ in range(depth)]
    built = [LogCoordBias(num_heads=h, window_size=(7, 7), cosine=True) for h in blocks]
    assert sum(p.numel() for encoding in built for p in encoding.parameters()) == 89_226


def test_start_is_a_constant_bias_and_temperature_ten() -> None:
    encoding = LogCoordBias(num_heads=2, window_size=(7, 7), cosine=True)
    bias = encoding.bias(None, None, Grid((7, 7)), 1.0)
    assert (bias - 8).abs().max() < 1.5
    assert torch.allclose(encoding.logit_scale.exp(), torch.tensor(10.0))
    assert set(encoding.no_decay()) == {name for name, _ in encoding.named_parameters()}


def test_cosine_survives_large_half_precision_activations() -> None:
    encoding = LogCoordBias(num_heads=1, window_size=(2, 2), cosine=True).half()
    encoding.logit_scale.data.fill_(log(1000.0))  # clamped to 100
    q = torch.full((1, 1, 4, 8), 6e4, dtype=torch.float16)
    unit_q, unit_k = encoding.rotate(q, torch.zeros_like(q), Grid((2, 2)))
    assert torch.allclose(unit_q.float().norm(dim=-1), torch.tensor(100 * 8**0.5), rtol=1e-2)
    assert torch.equal(unit_k, torch.zeros_like(q))
