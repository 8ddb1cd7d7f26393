"""DETR's encoder and detector: the authors' numbers, mmdet's, padding, grids and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from relpos_mm.encodings import ContextualRpe, Grid, position_modules
from relpos_mm.encodings.irpe_buckets import bucket_ids
from relpos_mm.models import attend
from relpos_mm.models.detr import valid_tokens
from relpos_mm.models.transformer_layer import TokenFacts, TransformerLayer
from relpos_mm.transfer import convert
from relpos_mm.transfer.networks import DETR
from tests.encodings.reference import FILES, error, facts, read

from .detr_tools import IRPE, SINES, build, config_of, encoder, samples

LAYER = "detr_enc_layer_product_ctx_k_shared_r2.0.npz"
OFFICIAL = "transformer.encoder.layers.0."


# ---------------------------------------------------------------------------- the authors' numbers


def check_layer(path: Path) -> float:
    """Output and gradients of a layer that is loaded by the public names; the largest error."""
    data, meta = read(path), facts(path)
    position = {k: meta[k] for k in ("mapping", "mode", "rpe_on", "shared_head", "ratio")}
    layer = TransformerLayer(
        data["src"].shape[2],
        data["src"].shape[2] // data["param.self_attn.rpe_k.lookup_table_weight"].shape[1],
        data["param.linear1.bias"].shape[0],
        pre_norm=meta["pre_norm"],
        act="ReLU",
        position=[{"type": "ContextualRpe", **position}],
        context={},
    ).double()
    public = {k.replace("param.", OFFICIAL): v for k, v in data.items() if k.startswith("param.")}
    ours = DETR.renamed(public, "official", "relpos")
    layer.load_state_dict({k.removeprefix("encoder.layers.0."): v for k, v in ours.items()})
    src, pos = (data[name].transpose(0, 1).clone().requires_grad_() for name in ("src", "pos"))
    grid = Grid((meta["height"], meta["width"]))
    out = layer(src, TokenFacts(grid, pos, data["key_padding_mask"]))
    out.backward(data["grad_out"].transpose(0, 1))
    errors = [error(out.transpose(0, 1), data["out"])]
    errors += [
        error(tensor.grad.transpose(0, 1), data[f"grad_{name}"])
        for name, tensor in (("src", src), ("pos", pos))
    ]
    grads = {f"encoder.layers.0.{name}": p.grad for name, p in layer.named_parameters()}
    for name, grad in DETR.renamed(grads, "relpos", "official").items():
        errors.append(error(grad, data[f"grad_param.{name.removeprefix(OFFICIAL)}"]))
    return max(errors)


def test_layer_equals_the_authors() -> None:
    assert check_layer(FILES / "irpe" / LAYER) < 1e-12


def test_every_layer_file(golden_dir: Path) -> None:
    errors = {p.name: check_layer(p) for p in (golden_dir / "irpe").glob("detr_enc_layer_*.npz")}
    assert len(errors) >= 2
    assert {name: value for name, value in errors.items() if value > 1e-9} == {}


# --------------------------------------------------------------------------------- mmdet's numbers


def stock_config() -> dict:
    """mmdet's own DETR of the sizes of the mini config."""
    config = config_of("abs")
    layer, width = config.decoder.layer_cfg, config.encoder.embed_dims
    layers = dict(self_attn_cfg=layer.self_attn_cfg, ffn_cfg=layer.ffn_cfg)
    config.encoder = dict(num_layers=config.encoder.num_layers, layer_cfg=layers)
    config.positional_encoding = dict(num_feats=width // 2, normalize=True)
    return config | {"type": "DETR"}


@pytest.mark.parametrize("sizes", [((80, 112), (80, 112)), ((80, 80), (61, 112))])
def test_stock_detr_is_mmdets(sizes: tuple) -> None:
    stock, ours = build(stock_config()), build(config_of("abs"))
    stock.init_weights()
    ours.load_state_dict(convert(stock.state_dict()))
    features = (torch.randn(2, 64, 5, 7),)
    states = [
        model.eval().forward_transformer(features, samples((80, 112), *sizes))["hidden_states"]
        for model in (stock, ours)
    ]
    torch.testing.assert_close(*states, atol=2e-5, rtol=1e-5)


def test_start_is_mmdets_but_for_the_encodings() -> None:
    """Xavier everywhere, as mmdet draws it; tables keep the start that their option names."""
    started = {}
    for slug in ("irpe_k", "abs"):
        torch.manual_seed(3)
        model = build(config_of(slug))
        model.init_weights()
        started[slug] = model.state_dict()
    assert all(torch.equal(started["irpe_k"][key], value) for key, value in started["abs"].items())
    table = next(value for key, value in started["irpe_k"].items() if "rpe_k" in key)
    bound = (6 / ((16 + 1) * 81)) ** 0.5  # (1, 16, 81) as Xavier counts it
    assert 0.9 * bound < table.abs().max() <= bound

    config = config_of("irpe_k")
    config.encoder.position[1].init = "zero"
    model = build(config)
    model.init_weights()
    assert all(not p.any() for p in position_parameters(model))
    weight = model.encoder.layers[0].attn.qkv.weight
    assert 0.9 < weight.abs().max() / (6 / (4 * 64)) ** 0.5 <= 1
    assert not model.encoder.layers[0].attn.qkv.bias.any()


def position_parameters(model: torch.nn.Module) -> list[Tensor]:
    return [p for found in position_modules(model).values() for p in found.parameters()]


# ---------------------------------------------------------------------------- grids and padding

OTHERS = {
    "none": [],
    "sin2d": [SINES],
    "irpe_qkv": [SINES, {**IRPE, "rpe_on": "qkv", "init": "xavier"}],
    "irpe_bias": [{**IRPE, "mode": "bias", "init": "xavier"}],
    "rope": [{"type": "AxialRope"}],
    "rope_mixed": [{"type": "MixedRope"}],
    "rel": [{"type": "RelativeBias"}],
    "peg": [{"type": "ConvPosition"}],
    "lepe": [{"type": "LocalEnhanced"}],
    "lookhere": [{"type": "DirectedDistance"}],
    "shaw": [{"type": "ShawRelative"}],
    "dpb": [{"type": "DynamicBias"}],
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_batch_of_two_sizes_gives_each_what_it_gets_alone(name: str) -> None:
    """B099: padding has no weight and moves no position, whatever the encoding."""
    model = encoder(OTHERS[name], window_size=(6, 9))
    for parameter in position_parameters(model):
        torch.nn.init.normal_(parameter, std=0.3)
    sizes = ((6, 5), (4, 9))
    alone = [torch.randn(1, *size, 24, dtype=torch.float64) for size in sizes]
    batch = torch.full((2, 6, 9, 24), 7.0, dtype=torch.float64)
    mask = torch.ones(2, 6, 9, dtype=torch.bool)
    for i, (h, w) in enumerate(sizes):
        batch[i, :h, :w], mask[i, :h, :w] = alone[i][0], False
    grid = Grid((6, 9), valid=sizes)
    together = model(batch.flatten(1, 2), grid, key_padding_mask=mask.flatten(1))
    for i, (h, w) in enumerate(sizes):
        one = model(alone[i].flatten(1, 2), Grid((h, w)))
        kept = together[i].view(6, 9, 24)[:h, :w].reshape(1, h * w, 24)
        torch.testing.assert_close(kept, one, atol=1e-10, rtol=1e-10)


def test_detector_carries_sizes_to_encoder_and_decoder() -> None:
    """B099: whole transformer, sizes that are multiples of the stride."""
    torch.manual_seed(0)
    model = build(config_of("irpe_qkv")).double().eval()
    features = torch.randn(2, 64, 5, 7, dtype=torch.float64)
    both = model.forward_transformer((features,), samples((80, 112), (80, 80), (64, 112)))
    for i, (h, w) in enumerate(((5, 5), (4, 7))):
        crop, size = features[i : i + 1, :, :h, :w].contiguous(), (16 * h, 16 * w)
        one = model.forward_transformer((crop,), samples(size, size))["hidden_states"]
        torch.testing.assert_close(both["hidden_states"][:, i : i + 1], one, atol=1e-9, rtol=1e-9)


def test_the_previous_map_does_not_matter() -> None:
    """B099, B100: 20 x 27 and 27 x 20 in turn; ids are built once per size."""
    torch.manual_seed(0)
    position = [SINES, {**IRPE, "init": "xavier"}]
    model = encoder(position)
    maps = {(20, 27): torch.randn(1, 540, 24).double(), (27, 20): torch.randn(1, 540, 24).double()}
    bucket_ids.cache_clear()
    first = {size: model(x, Grid(size)) for size, x in maps.items()}
    for size, x in list(maps.items()) * 2:
        assert torch.equal(model(x, Grid(size)), first[size])
    assert bucket_ids.cache_info().misses == 2
    bucket_ids.cache_clear()  # evicted: built again, and right
    assert torch.equal(model(maps[27, 20], Grid((27, 20))), first[27, 20])


def test_valid_tokens_count_partly_padded_ones() -> None:
    assert valid_tokens((64, 96), [(64, 96), (64, 96)], (2, 3)) == (None, None)
    valid, mask = valid_tokens((64, 96), [(64, 96), (33, 20)], (2, 3))
    assert valid == [(2, 3), (2, 1)]
    assert mask.view(2, 2, 3)[1].tolist() == [[False, True, True]] * 2
    # 100 px on 4 rows: steps of 25 px, so 60 px reach the third, which alone would be two of 32.
    assert valid_tokens((100, 32), [(100, 32), (60, 32)], (4, 1))[0] == [(4, 1), (3, 1)]


def test_learned_embedding_grows_with_the_map() -> None:
    """B101: 1700 px make 54 tokens, more than any table has; it is stretched."""
    model = encoder([{"type": "AbsoluteTable"}], num_layers=1)
    assert model(torch.randn(1, 54 * 54, 24).double(), Grid((54, 54))).isfinite().all()


# ----------------------------------------------------------------------------- where, and refusals


@pytest.mark.parametrize(("slug", "sides"), [("irpe_k", 1), ("irpe_qkv", 3), ("irpe_k_noabs", 1)])
def test_encodings_stand_in_the_encoder_alone(slug: str, sides: int) -> None:
    """B099: tables in every encoder layer, nowhere else."""
    model = build(config_of(slug))
    tables = [name for name, _ in model.named_parameters() if "lookup_table" in name]
    assert len(tables) == 2 * sides
    assert all(name.startswith("encoder.layers.") for name in tables)


def test_no_bucket_for_a_class_token_that_detr_lacks() -> None:
    """B097: 49 and 81 buckets; a table with one more loads by dropping that one, with a word."""
    for ratio, buckets in ((1.9, 49), (2.0, 81)):
        model = encoder([{**IRPE, "ratio": ratio}])
        encoding = model.layers[0].attn.position["contextual_rpe"]
        assert encoding.num_buckets == buckets
        with_class = ContextualRpe(embed_dims=24, num_heads=3, ratio=ratio, skip=1, init="xavier")
        state = with_class.state_dict()
        encoding.load_state_dict(state)
        kept = encoding.rpe_k.lookup_table_weight.float()
        key = "rpe_k.lookup_table_weight"
        assert torch.equal(kept, with_class.state_dict()[key][..., :buckets])


@pytest.mark.parametrize("place", ["decoder", "decoder.layer_cfg.cross_attn_cfg"])
def test_cross_attention_is_refused_with_the_reason(place: str) -> None:
    """B099."""
    config = config_of("irpe_k")
    node = config
    for key in place.split("."):
        node = node[key]
    node["position"] = [IRPE]
    with pytest.raises(ValueError, match=rf"{place}\.position: object queries have no place"):
        build(config)


def test_two_sources_of_sines_are_refused() -> None:
    config = config_of("irpe_k")
    config.positional_encoding = dict(num_feats=32, normalize=True)
    with pytest.raises(ValueError, match=r"beside encoder\.position; set it to None"):
        build(config)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_layers": 0}, "RelPosDetrEncoder: num_layers must be a whole number .* got 0"),
        ({"num_layers": [6]}, r"num_layers must be a whole number of at least 1, got \[6\]"),
        ({"embed_dims": -24}, "embed_dims must be a whole number of at least 1, got -24"),
        ({"num_heads": 5}, "RelPosDetrEncoder: num_heads=5 does not divide embed_dims=24"),
        ({"feedforward_channels": 0}, "feedforward_channels must be a whole number"),
        ({"feedforward_channels": 32.5}, "feedforward_channels must be .* got 32.5"),
        ({"dropout": -0.1}, "dropout must be from 0 to below 1, got -0.1"),
        ({"dropout": "0.1"}, "dropout must be from 0 to below 1, got '0.1'"),
        ({"grid_size": (25, 0)}, r"grid_size must be a number or \(H, W\), at least 1, got"),
        ({"window_size": (42,)}, r"RelPosDetrEncoder: window_size must be .* got \(42,\)"),
        ({"position": "Sinusoid2d"}, "position must be a list of dicts .* got 'Sinusoid2d'"),
        ({"position": IRPE}, "RelPosDetrEncoder: position must be a list of dicts"),
        ({"position": [{}]}, "every entry is a dict with a 'type', got {}"),
    ],
)
def test_impossible_settings_are_refused_in_one_sentence(arguments, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encoder(**{"position": [], **arguments})


def test_a_missing_or_wrong_grid_is_named() -> None:
    model = encoder([IRPE])
    with pytest.raises(ValueError, match="no grid was given"):
        model(torch.zeros(1, 12, 24).double(), None)
    with pytest.raises(ValueError, match=r"12 tokens do not fit the grid \(3, 5\)"):
        model(torch.zeros(1, 12, 24).double(), Grid((3, 5)))


# ------------------------------------------------------------------------------- training mode


def test_dropout_reaches_attention_and_value_terms() -> None:
    position = [{**IRPE, "rpe_on": "v", "init": "xavier"}]
    rpe = encoder(position).layers[0].attn.encodings
    q, k, v = (torch.randn(1, 3, 12, 8, dtype=torch.float64) for _ in range(3))
    dropped = attend(q, k, v, rpe, Grid((3, 4)), dropout=1.0)
    assert not dropped.any()
    kept = attend(q, k, v, rpe, Grid((3, 4)))
    torch.manual_seed(0)
    mean = sum(attend(q, k, v, rpe, Grid((3, 4)), dropout=0.3) for _ in range(600)) / 600
    assert (mean - kept).abs().max() < 0.15 * kept.abs().max()

    model = encoder(position, dropout=0.3)
    x = torch.randn(1, 12, 24).double()
    assert torch.equal(model(x, Grid((3, 4))), model(x, Grid((3, 4))))
    model.layers[0].drop.p = model.layers[1].drop.p = 0.0
    model.train()
    assert not torch.equal(model(x, Grid((3, 4))), model(x, Grid((3, 4))))


@pytest.mark.parametrize("pre_norm", [False, True])
def test_checkpointing_changes_no_gradient(pre_norm: bool) -> None:
    grads = []
    for with_cp in (False, True):
        torch.manual_seed(0)
        model = encoder([SINES, IRPE], with_cp=with_cp, pre_norm=pre_norm, dropout=0.0).train()
        model(torch.ones(1, 12, 24).double(), Grid((3, 4))).square().sum().backward()
        grads.append([p.grad for p in model.parameters()])
    assert all(torch.equal(*pair) for pair in zip(*grads, strict=True))
