"""iRPE's attention against the authors' numbers, values and gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from relpos_mm.encodings import ContextualRpe, Grid
from relpos_mm.models import attend

from .reference import FILES, error, facts, read

FOLDER = FILES / "irpe"


def built(path: Path, embed_dims: int, num_heads: int) -> tuple[ContextualRpe, dict[str, Tensor]]:
    """The encoding of a file in float64, and its parameters by the file's names."""
    meta = facts(path)
    options = {key: meta[key] for key in ("mapping", "mode", "rpe_on", "shared_head", "ratio")}
    skip = meta.get("extra_tokens", 0)
    encoding = ContextualRpe(embed_dims=embed_dims, num_heads=num_heads, skip=skip, **options)
    assert encoding.num_buckets == meta["num_buckets"]
    named = {}
    for name, parameter in encoding.named_parameters():
        part = name.replace("rpe_", "table_").replace("rp_", "").split(".")[:-1]
        named["_".join(part)] = parameter
    data = read(path)
    assert {key for key in data if key.startswith("table_")} == set(named)
    encoding.double()
    with torch.no_grad():
        for key, parameter in named.items():
            parameter.copy_(data[key])
    return encoding, named


def grid_of(path: Path) -> Grid:
    meta = facts(path)
    return Grid((meta["height"], meta["width"]), prefix=meta.get("extra_tokens", 0))


def check_core(path: Path) -> float:
    """Attention of the DETR code, values, logits and gradients; the largest error."""
    data = read(path)
    inputs = [data[name].requires_grad_() for name in "qkv"]
    heads, width = data["q"].shape[1], data["q"].shape[3]
    encoding, named = built(path, heads * width, heads)
    hidden = data.get("key_padding_mask")
    out = attend(*inputs, [encoding], grid_of(path), key_padding_mask=hidden)
    out.backward(data["grad_out"])
    errors = [error(out, data["out"])]
    errors += [error(data[name].grad, data[f"grad_{name}"]) for name in "qkv"]
    errors += [error(parameter.grad, data[f"grad_{key}"]) for key, parameter in named.items()]
    if "term_k" in data or "term_q" in data:
        term = encoding.bias(data["q"], data["k"], grid_of(path), facts(path)["scale"])
        errors.append(error(term, data.get("term_k", 0) + data.get("term_q", 0)))
    return max(errors)


def check_vit(path: Path) -> float:
    """Attention layer of the DeiT code with its projections."""
    data = read(path)
    names = ("x", "qkv_weight", "qkv_bias", "proj_weight", "proj_bias")
    for name in names:
        data[name].requires_grad_()
    heads = facts(path)["num_heads"]
    batch, tokens, channels = data["x"].shape
    encoding, named = built(path, channels, heads)
    qkv = F.linear(data["x"], data["qkv_weight"], data["qkv_bias"])
    qkv = qkv.view(batch, tokens, 3, heads, -1).permute(2, 0, 3, 1, 4)
    out = attend(*qkv, [encoding], grid_of(path)).transpose(1, 2).reshape(batch, tokens, channels)
    out = F.linear(out, data["proj_weight"], data["proj_bias"])
    out.backward(data["grad_out"])
    errors = [error(out, data["out"])]
    errors += [error(data[name].grad, data[f"grad_{name}"]) for name in names]
    errors += [error(parameter.grad, data[f"grad_{key}"]) for key, parameter in named.items()]
    return max(errors)


def check_encoder_layer(path: Path) -> float:
    """DETR encoder layer: positions are added to queries and keys, padding is hidden."""
    data = read(path)
    meta = facts(path)
    state = {k.removeprefix("param."): v for k, v in data.items() if k.startswith("param.")}
    for tensor in (data["src"], data["pos"], *state.values()):
        tensor.requires_grad_()
    tokens, batch, channels = data["src"].shape
    heads = meta["num_heads"] if "num_heads" in meta else channels // 8
    options = {key: meta[key] for key in ("mapping", "mode", "rpe_on", "shared_head", "ratio")}
    encoding = ContextualRpe(embed_dims=channels, num_heads=heads, **options).double()
    table = "self_attn.rpe_k.lookup_table_weight"
    encoding.rpe_k.lookup_table_weight = torch.nn.Parameter(state[table].detach())

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (channels,), state[f"{name}.weight"], state[f"{name}.bias"])

    def attention(x: Tensor) -> Tensor:
        weight, bias = state["self_attn.in_proj_weight"], state["self_attn.in_proj_bias"]
        located = x + data["pos"]
        parts = zip((located, located, x), weight.chunk(3), bias.chunk(3), strict=True)
        q, k, v = (
            F.linear(*part).view(tokens, batch, heads, -1).permute(1, 2, 0, 3) for part in parts
        )
        out = attend(q, k, v, [encoding], grid_of(path), key_padding_mask=data["key_padding_mask"])
        out = out.permute(2, 0, 1, 3).reshape(tokens, batch, channels)
        return F.linear(out, state["self_attn.out_proj.weight"], state["self_attn.out_proj.bias"])

    def mlp(x: Tensor) -> Tensor:
        hidden = F.linear(x, state["linear1.weight"], state["linear1.bias"]).relu()
        return F.linear(hidden, state["linear2.weight"], state["linear2.bias"])

    x = data["src"]
    if meta["pre_norm"]:
        x = x + attention(norm(x, "norm1"))
        x = x + mlp(norm(x, "norm2"))
    else:
        x = norm(x + attention(x), "norm1")
        x = norm(x + mlp(x), "norm2")
    x.backward(data["grad_out"])
    errors = [error(x, data["out"])]
    errors += [error(data[name].grad, data[f"grad_{name}"]) for name in ("src", "pos")]
    state[table].grad = encoding.rpe_k.lookup_table_weight.grad
    errors += [error(tensor.grad, data[f"grad_param.{name}"]) for name, tensor in state.items()]
    return max(errors)


def test_attention_equals_the_authors() -> None:
    assert check_core(FOLDER / "core_cross_ctx_qkv_shared_r2.0.npz") < 1e-12
    assert check_vit(FOLDER / "vit_product_ctx_k_shared_r1.9_extra2.npz") < 1e-12


@pytest.mark.parametrize(
    ("pattern", "check", "files"),
    [("core_*", check_core, 20), ("vit_*", check_vit, 9), ("detr_*", check_encoder_layer, 2)],
)
def test_every_reference_file(golden_dir: Path, pattern: str, check, files: int) -> None:
    errors = {path.name: check(path) for path in sorted((golden_dir / "irpe").glob(pattern))}
    assert len(errors) >= files
    assert {name: value for name, value in errors.items() if value > 1e-9} == {}
