"""The plain ViT: the authors' numbers, mmpretrain's, sizes and the class token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import Config

import relpos_mm  # noqa: F401  registers what the configs name
from relpos_mm.encodings import Grid, position_slug
from relpos_mm.models import RelPosViT
from relpos_mm.models.transformer_layer import GlobalAttention, TokenFacts
from tests.encodings.reference import FILES, error, facts, read

CONFIGS = Path(__file__).parents[2] / "configs"
ABSOLUTE = {"type": "AbsoluteTable"}
IRPE = {"type": "ContextualRpe", "skip": 1}


def small(position: list[dict[str, Any]], **options: Any) -> RelPosViT:
    sizes = {"embed_dims": 24, "depth": 2, "num_heads": 3, "pretrain_img_size": 64}
    return RelPosViT(**{**sizes, "position": position, **options})


def check_attention(path: Path) -> float:
    """A whole attention layer, class tokens included, with gradients; the largest error."""
    data, meta = read(path), facts(path)
    options = {k: meta[k] for k in ("mapping", "mode", "rpe_on", "shared_head", "ratio")}
    prefix, channels = meta.get("extra_tokens", 0), data["x"].shape[2]
    heads = meta["num_heads"] if "num_heads" in meta else channels // 8
    position = [{"type": "ContextualRpe", "skip": prefix, **options}]
    layer = GlobalAttention(channels, heads, position=position, context={}).double()
    named = {
        f"{module}_{kind}": layer.get_parameter(f"{module}.{kind}")
        for module in ("qkv", "proj")
        for kind in ("weight", "bias")
    }
    for name, parameter in layer.position["contextual_rpe"].named_parameters():
        named["_".join(name.replace("rpe_", "table_").replace("rp_", "").split(".")[:-1])] = (
            parameter
        )
    assert {key for key in data if key.startswith("table_")} <= named.keys()
    with torch.no_grad():
        for key, parameter in named.items():
            parameter.copy_(data[key])
    x = data["x"].requires_grad_()
    out = layer(x, TokenFacts(Grid((meta["height"], meta["width"]), prefix=prefix)))
    out.backward(data["grad_out"])
    errors = [error(out, data["out"]), error(x.grad, data["grad_x"])]
    errors += [error(parameter.grad, data[f"grad_{key}"]) for key, parameter in named.items()]
    return max(errors)


def test_attention_equals_the_authors() -> None:
    assert check_attention(FILES / "irpe" / "vit_product_ctx_k_shared_r1.9_extra2.npz") < 1e-12


def test_every_attention_file(golden_dir: Path) -> None:
    errors = {path.name: check_attention(path) for path in (golden_dir / "irpe").glob("vit_*.npz")}
    assert len(errors) >= 9
    assert {name: value for name, value in errors.items() if value > 1e-9} == {}


def test_stock_vit_is_mmpretrains() -> None:
    from mmpretrain.models import VisionTransformer

    torch.manual_seed(0)
    arch = {"embed_dims": 24, "num_layers": 2, "num_heads": 3, "feedforward_channels": 96}
    stock, ours = VisionTransformer(arch, img_size=64), small([ABSOLUTE])
    state = {key: torch.randn_like(value) * 0.1 for key, value in stock.state_dict().items()}
    stock.load_state_dict(state)
    renamed = {
        key.replace(".ln", ".norm").replace("ln1.", "norm."): value for key, value in state.items()
    }
    rows = renamed.pop("pos_embed")
    table = "position.absolute_table"
    renamed[f"{table}.prefix_pos_embed"] = rows[:, :1]
    renamed[f"{table}.absolute_pos_embed"] = rows[:, 1:]
    ours.load_state_dict(renamed)
    x = torch.randn(2, 3, 64, 64)
    for model in (ours, stock):
        model.eval()  # mmpretrain's returns nothing
    torch.testing.assert_close(ours(x)[0], stock(x)[0], atol=1e-5, rtol=1e-5)


# Published: 22.089, 22.127 and 22.166 million.
COUNTS = {
    "abs": 22_050_664,
    "irpe_k": 22_089_064,
    "irpe_qk": 22_127_464,
    "irpe_qkv": 22_165_864,
    "irpe_k_noabs": 22_089_064 - 197 * 384,
}
HEAD = 384 * 1000 + 1000


@pytest.mark.parametrize("slug", COUNTS)
def test_configs_have_the_published_parameters(slug: str) -> None:
    config = Config.fromfile(CONFIGS / f"cls_deit_s_{slug}.py")
    options = {key: value for key, value in config.model.backbone.items() if key != "type"}
    with torch.device("meta"):
        backbone = RelPosViT(**options)
    assert sum(parameter.numel() for parameter in backbone.parameters()) + HEAD == COUNTS[slug]
    assert position_slug(backbone.position_cfg, backbone.usual_slug) == slug
    assert config.train_cfg.max_epochs == 300
    assert config.auto_scale_lr.base_batch_size == 1024
    assert config.optim_wrapper.optimizer.lr == 1e-3


@pytest.mark.parametrize("size", [(64, 64), (64, 96), (50, 130), (16, 16)])
def test_pictures_of_any_size(size: tuple[int, int]) -> None:
    """Not square, no multiple of the patch: no grid is ever guessed."""
    model = small([ABSOLUTE, {**IRPE, "rpe_on": "qkv"}, {"type": "ConvPosition"}])
    (token,) = model(torch.randn(2, 3, *size))
    assert token.shape == (2, 24)
    token.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_grid_shape_matters() -> None:
    """4 x 9 and 9 x 4 patches with a class token are 37 tokens both; only the grid tells them."""
    torch.manual_seed(0)
    model = small([{**IRPE, "init": "xavier"}]).double().eval()
    torch.nn.init.normal_(model.layers[0].attn.position["contextual_rpe"].rpe_k.lookup_table_weight)
    patches = torch.randn(1, 37, 24).double()
    wide, tall = (model.run(patches, TokenFacts(Grid(size, prefix=1))) for size in ((4, 9), (9, 4)))
    assert (wide - tall).abs().max() > 1e-9


def test_encodings_of_the_grid_leave_the_class_token_alone() -> None:
    model = small([{"type": "Sinusoid2d", "site": "qk_input"}, {"type": "AxialRope"}])
    x = torch.zeros(1, 17, 24)
    located = model.query_pos(x, Grid((4, 4), prefix=1))
    assert not located[:, 0].any()
    assert located[:, 1:].any(-1).all()
    assert model(torch.randn(1, 3, 64, 64))[0].isfinite().all()


def test_network_starts_equally_whatever_encodings_it_has() -> None:
    states = []
    for position in ([], [ABSOLUTE, {**IRPE, "init": "xavier"}, {"type": "DynamicBias"}]):
        torch.manual_seed(0)
        states.append(small(position).state_dict())
    assert all(torch.equal(states[1][key], value) for key, value in states[0].items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"embed_dims": 0}, "RelPosViT: embed_dims must be a whole number of at least 1, got 0"),
        ({"embed_dims": 24.0}, "embed_dims must be a whole number of at least 1, got 24.0"),
        ({"num_heads": 5}, "RelPosViT: num_heads=5 does not divide embed_dims=24"),
        ({"num_heads": [3, 3]}, r"num_heads must be a whole number .* got \[3, 3\]"),
        ({"depth": 0}, "depth must be a whole number of at least 1, got 0"),
        ({"depth": (2, 2)}, r"depth must be a whole number .* got \(2, 2\)"),
        ({"in_channels": -3}, "in_channels must be a whole number"),
        ({"patch_size": (16, 16)}, "patch_size must be a whole number"),
        ({"patch_size": 0}, "patch_size must be a whole number of at least 1, got 0"),
        ({"pretrain_img_size": (0, 64)}, "pretrain_img_size must be .* at least 1"),
        ({"pretrain_img_size": "64"}, "pretrain_img_size must be a number or .* got '64'"),
        ({"mlp_ratio": 0}, "mlp_ratio must be a number above 0, got 0"),
        ({"mlp_ratio": 0.01}, "feedforward_channels must be a whole number of at least 1, got 0"),
        ({"drop_path_rate": 1.0}, "drop_path_rate must be from 0 to below 1, got 1.0"),
        ({"drop_path_rate": None}, "drop_path_rate must be from 0 to below 1, got None"),
        ({"position": None}, r"position must be a list of dicts \(\[\] is no encoding\), got None"),
        ({"position": ABSOLUTE}, "RelPosViT: position must be a list of dicts"),
        ({"position": ["AbsoluteTable"]}, "every entry is a dict with a 'type', got 'Absolute"),
        ({"position": [{"type": "AbsoluteTabel"}]}, "did you mean 'AbsoluteTable'"),
        ({"position": [{"type": ["AbsoluteTable"]}]}, r"no encoding is called \['AbsoluteTable'\]"),
        ({"position": [{**IRPE, "rpe_no": "k"}]}, "ContextualRpe has no argument 'rpe_no'"),
    ],
)
def test_impossible_settings_are_refused_in_one_sentence(arguments, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**{"position": [], **arguments})


def test_foreign_argument_names_are_explained() -> None:
    with pytest.raises(TypeError, match="embed_dim -> embed_dims=<number>"):
        RelPosViT(embed_dim=192)
