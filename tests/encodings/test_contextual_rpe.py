"""iRPE against the authors' numbers, its errors, caches, initial values and transfers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from relpos_mm.encodings import ContextualRpe, Grid
from relpos_mm.encodings.irpe_buckets import BucketRule, bucket_ids
from relpos_mm.models import attend
from relpos_mm.registry import build_positions

from .reference import FILES, error, facts, read

FOLDER = FILES / "irpe"
SMALL = {"embed_dims": 16, "num_heads": 2}


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


def test_bucket_ids_equal_the_authors() -> None:
    data = read(FOLDER / "bucket_ids.npz")
    tables = {"cross_rows": ("cross", 0), "cross_cols": ("cross", 1), "quant": ("quantization", 0)}
    for name, expected in data.items():
        if name.endswith("num_buckets"):
            continue
        mapping, ratio, size, skip = name.split("__")
        mapping, table = tables.get(mapping, (mapping, 0))
        height, width = map(int, size.split("x"))
        rule = BucketRule(mapping, float(ratio[1:]))
        ids = bucket_ids(rule, (height, width), int(skip[4:]))[table]
        assert torch.equal(ids.long(), expected.long()), name
        assert rule.num_buckets + (skip != "skip0") == data[f"{name}__num_buckets"], name


def test_index_of_one_axis_equals_the_authors() -> None:
    data = read(FOLDER / "piecewise_1d.npz")
    for name, expected in data.items():
        if name.startswith("index__r"):
            rule = BucketRule("product", float(name.removeprefix("index__r")))
            assert torch.equal(rule.axis_index(data["offsets"]), expected.long()), name


def test_seven_indices_per_axis() -> None:
    """B097: 0 and 1 exact, 2 and 3 share, 4 and more share, odd-symmetric."""
    index = BucketRule("product", 1.9).axis_index(torch.arange(-20, 21))
    assert index.tolist() == [-3] * 17 + [-2, -2, -1, 0, 1, 2, 2] + [3] * 17


def test_ids_are_row_major_query_minus_key() -> None:
    ids = bucket_ids(BucketRule("product", 2.0), (2, 2))[0]
    assert ids[0, 3] == 3 * 9 + 3  # dy = dx = -1
    assert ids[2, 0] == 5 * 9 + 4  # dy = 1, dx = 0


def test_occurring_buckets_equal_the_authors() -> None:
    data = read(FOLDER / "bucket_occupancy.npz")["table"]
    names = ("euclidean", "quant", "product", "cross", "cross")
    seen: dict[tuple[object, ...], float] = {}
    for mapping, height, width, ratio, _, used, _, _ in data.tolist():
        key = (names[int(mapping)], int(height), int(width), ratio)
        seen[key] = seen.get(key, 0) + used  # cross: rows and columns
    for (mapping, height, width, ratio), used in seen.items():
        encoding = ContextualRpe(**SMALL, mapping=mapping, ratio=ratio)
        assert encoding.num_occurring((height, width)) == used, (mapping, ratio)


@pytest.mark.parametrize(
    ("mapping", "ratio", "rows", "occurring"),
    [("euc", 20, 82, 20), ("quant", 33, 134, 51), ("cross", 20, 82, 56), ("product", 1.9, 50, 50)],
)
def test_published_names_count_occurring_buckets(mapping, ratio, rows, occurring) -> None:
    encoding = ContextualRpe(**SMALL, mapping=mapping, ratio=ratio, skip=1)
    assert encoding.num_buckets == rows
    assert encoding.num_occurring(Grid((14, 14), prefix=1)) == occurring


def test_paper_and_code_differ_where_reported() -> None:
    def ids(mapping: str, ratio: float, semantics: str, size: tuple[int, int]) -> Tensor:
        table = BucketRule(mapping, ratio, semantics=semantics).offset_buckets(size)[0]
        return table[size[0] - 1 :, size[1] - 1 :]

    for ratio, count in ((1.9, 2), (2.0, 0), (20, 54), (33, 27)):
        code, paper = (ids("euclidean", ratio, who, (25, 38)) for who in ("code", "paper"))
        assert (code != paper).sum() == count
    for size, code_used, paper_used in (((14, 14), 50, 50), ((25, 38), 50, 67)):
        assert len(ids("quantization", 33, "code", size).unique()) == code_used
        assert len(ids("quantization", 33, "paper", size).unique()) == paper_used


def test_query_side_of_the_paper_is_the_mirrored_table() -> None:
    code = ContextualRpe(**SMALL, rpe_on="q", ratio=2.0).double()
    paper = ContextualRpe(**SMALL, rpe_on="q", ratio=2.0, semantics="paper").double()
    torch.nn.init.normal_(code.rpe_q.lookup_table_weight)
    with torch.no_grad():
        paper.rpe_q.lookup_table_weight.copy_(code.rpe_q.lookup_table_weight.flip(-1))
    q, k = torch.randn(2, 1, 2, 30, 8, dtype=torch.float64)
    torch.testing.assert_close(
        code.bias(q, k, Grid((5, 6)), 0.3), paper.bias(q, k, Grid((5, 6)), 0.3)
    )


def test_grids_in_turn_build_once_and_change_nothing() -> None:
    encoding = ContextualRpe(**SMALL, rpe_on="qk", ratio=2.0).double()
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter)
    bucket_ids.cache_clear()
    sizes = [(20, 7), (7, 20), (20, 7), (7, 20), (20, 7)]
    tokens = torch.randn(2, 1, 2, 140, 8, dtype=torch.float64)
    results = [encoding.bias(*tokens, Grid(size), 1.0) for size in sizes]
    assert bucket_ids.cache_info().misses == 2
    assert torch.equal(results[0], results[2])
    assert torch.equal(results[1], results[3])
    assert bucket_ids.cache_info().maxsize is not None


def test_number_of_prefix_tokens_is_part_of_the_cache_key() -> None:
    encoding = ContextualRpe(**SMALL, skip=1, rpe_on="kv")
    for prefix in (1, 2, 1):
        tokens = torch.randn(3, 1, 2, 12 + prefix, 8)
        out = attend(*tokens, [encoding], Grid((3, 4), prefix=prefix))
        assert out.shape == tokens[0].shape


def test_ids_are_compact() -> None:
    assert bucket_ids(BucketRule("product", 2.0), (12, 12))[0].dtype == torch.uint8
    assert bucket_ids(BucketRule("product", 20.0), (12, 12))[0].dtype == torch.int16


def test_prefix_tokens_without_a_bucket_are_left_alone() -> None:
    encoding = ContextualRpe(**SMALL, rpe_on="kv").double()
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter)
    q, k, v = torch.randn(3, 1, 2, 14, 8, dtype=torch.float64)
    out = attend(q, k, v, [encoding], Grid((3, 4), prefix=2))
    plain = attend(q, k, v, [], Grid((3, 4), prefix=2))
    torch.testing.assert_close(out[:, :, :2], plain[:, :, :2])
    assert not torch.allclose(out[:, :, 2:], plain[:, :, 2:])


class LargestTensor(TorchDispatchMode):
    """Remembers the largest tensor that any operation returned."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage().nbytes() // tensor.element_size()
                self.numbers = max(self.numbers, storage)
        return out


def test_no_vector_per_pair() -> None:
    encoding = ContextualRpe(embed_dims=64, num_heads=2, rpe_on="qkv", ratio=2.0)
    grid, (q, k, v) = Grid((9, 8)), (torch.randn(1, 2, 72, 32, requires_grad=True) for _ in "qkv")
    with LargestTensor() as largest:
        attend(q, k, v, [encoding], grid, impl="eager").sum().backward()
    assert largest.numbers <= 2 * 72 * max(72, encoding.num_buckets)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rpe_on": ""}, "one or more of the sides"),
        ({"rpe_on": "kx"}, "one or more of the sides"),
        ({"rpe_on": "kk"}, "one or more of the sides"),
        ({"rpe_on": "qkv", "mode": "bias"}, "values need mode='contextual'"),
        ({"mode": "biased"}, "mode='biased' is none of"),
        ({"mapping": "manhattan"}, "mapping='manhattan' is none of"),
        ({"index": "log"}, "index='log' is none of"),
        ({"semantics": "supplement"}, "semantics='supplement' is none of"),
        ({"init": "normal"}, "init='normal' is none of"),
        ({"ratio": 0}, "single bucket"),
        ({"ratio": float("nan")}, "single bucket"),
        ({"skip": -1}, "cannot be -1"),
        ({"num_heads": 3}, "does not divide"),
    ],
)
def test_wrong_options_are_refused(options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ContextualRpe(**{**SMALL, **options})


def test_wrong_calls_are_refused() -> None:
    tokens = torch.randn(3, 1, 2, 18, 8)
    encoding = ContextualRpe(**SMALL)
    with pytest.raises(ValueError, match="no grid"):
        attend(*tokens, [encoding], None)
    with pytest.raises(ValueError, match="no grid"):
        encoding.bias(*tokens[:2], None, 1.0)
    with pytest.raises(ValueError, match=r"18 queries and 18 keys do not fit the grid q=\(4, 4\)"):
        attend(*tokens, [encoding], Grid((4, 4)))
    for rpe_on in ("k", "v"):
        with pytest.raises(ValueError, match="cross-attention"):
            attend(
                tokens[0],
                *tokens[1:, :, :, :9],
                [ContextualRpe(**SMALL, rpe_on=rpe_on)],
                Grid((3, 6), k=(3, 3)),
            )
    with pytest.raises(ValueError, match="build it with skip=0"):
        attend(*tokens, [ContextualRpe(**SMALL, skip=1)], Grid((3, 6)))


def test_names_are_those_of_the_released_models() -> None:
    encoding = ContextualRpe(**SMALL, rpe_on="qkv", ratio=1.9, skip=1)
    assert {k: tuple(v.shape) for k, v in encoding.state_dict().items()} == {
        "rpe_q.lookup_table_weight": (1, 8, 50),
        "rpe_k.lookup_table_weight": (1, 8, 50),
        "rpe_v.lookup_table_weight": (1, 50, 8),
    }
    cross = ContextualRpe(**SMALL, mapping="cross", mode="bias", shared_head=False)
    assert {k: tuple(v.shape) for k, v in cross.state_dict().items()} == {
        "rpe_k.rp_rows.lookup_table_bias": (2, 7),
        "rpe_k.rp_cols.lookup_table_bias": (2, 7),
    }


@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ({"ratio": 2.0}, 0.04738),
        ({"ratio": 2.0, "shared_head": False}, 0.0430),
        ({"ratio": 2.0, "mode": "bias"}, 0.2705),
        ({"ratio": 2.0, "rpe_on": "v"}, 0.048),
    ],
)
def test_initial_values(options, bound: float) -> None:
    sizes = {"embed_dims": 256, "num_heads": 8}
    zero = ContextualRpe(**sizes, **options)
    assert all(not parameter.any() for parameter in zero.parameters())
    (table,) = ContextualRpe(**sizes, **options, init="xavier").parameters()
    assert table.abs().max() <= bound * 1.01
    assert table.abs().max() > bound * 0.9


def test_decay_is_declared() -> None:
    encoding = ContextualRpe(**SMALL, mapping="cross")
    assert set(encoding.no_decay()) == {name for name, _ in encoding.named_parameters()}
    assert ContextualRpe(**SMALL, weight_decay=True).no_decay() == ()


def test_prefix_bucket_of_a_checkpoint_is_handled_by_name() -> None:
    with_class = ContextualRpe(**SMALL, rpe_on="qkv", skip=1)
    for parameter in with_class.parameters():
        torch.nn.init.normal_(parameter)
    without = ContextualRpe(**SMALL, rpe_on="qkv")
    records = without.transfer(with_class.state_dict(), "")
    assert (records[0].old_shape, records[0].new_shape) == ((1, 8, 50), (1, 8, 49))
    assert "dropped" in str(records[0])
    without.load_state_dict(with_class.state_dict())
    assert torch.equal(
        without.rpe_k.lookup_table_weight, with_class.rpe_k.lookup_table_weight[..., :49]
    )
    assert torch.equal(
        without.rpe_v.lookup_table_weight, with_class.rpe_v.lookup_table_weight[:, :49]
    )
    again = ContextualRpe(**SMALL, rpe_on="qkv", skip=2)
    again.load_state_dict(without.state_dict())
    assert not again.rpe_v.lookup_table_weight[:, 49].any()
    with pytest.raises(ValueError, match="set shared_head"):
        ContextualRpe(**SMALL, rpe_on="qkv", ratio=2.0).load_state_dict(without.state_dict())


def test_heads_and_channels_come_from_the_host() -> None:
    (encoding,) = build_positions(
        [{"type": "ContextualRpe", "rpe_on": "qk"}], embed_dims=64, num_heads=2, window_size=(7, 7)
    )
    assert encoding.rpe_k.lookup_table_weight.shape == (1, 32, 49)
