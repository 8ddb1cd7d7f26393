"""iRPE's options, errors, caches, initial values and transfers."""

from __future__ import annotations

import pytest
import torch

from relpos_mm.encodings import ContextualRpe, Grid
from relpos_mm.encodings.irpe_buckets import bucket_ids
from relpos_mm.models import attend
from relpos_mm.registry import build_positions

SMALL = {"embed_dims": 16, "num_heads": 2}


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


def test_prefix_tokens_without_a_bucket_are_left_alone() -> None:
    encoding = ContextualRpe(**SMALL, rpe_on="kv").double()
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter)
    q, k, v = torch.randn(3, 1, 2, 14, 8, dtype=torch.float64)
    out = attend(q, k, v, [encoding], Grid((3, 4), prefix=2))
    plain = attend(q, k, v, [], Grid((3, 4), prefix=2))
    torch.testing.assert_close(out[:, :, :2], plain[:, :, :2])
    assert not torch.allclose(out[:, :, 2:], plain[:, :, 2:])


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
        ({"ratio": 0.4}, "single bucket"),
        ({"ratio": 0}, "ratio must be a number above 0, got 0"),
        ({"ratio": float("nan")}, "ratio must be a number above 0, got nan"),
        ({"ratio": "2"}, "ratio must be a number above 0, got '2'"),
        ({"skip": 1.5}, "at least 0, got 1.5"),
        ({"skip": -1}, "at least 0, got -1"),
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
