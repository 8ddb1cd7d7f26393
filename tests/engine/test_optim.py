"""Position parameters take no decay; nothing else changes; rules that match nothing fail."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from mmengine.config import ConfigDict
from mmengine.optim import build_optim_wrapper
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from relpos_mm.encodings import position_modules
from relpos_mm.engine import UserError
from relpos_mm.engine.optim import group_table

from .toys import ABSREL, RELONLY, ToyModel


def build(model: nn.Module, **paramwise: Any) -> dict[str, dict[str, Any]]:
    """Return the optimiser's group of every parameter, by name."""
    wrapper = build_optim_wrapper(
        model,
        {
            "constructor": "PositionOptimConstructor",
            "optimizer": {"type": "AdamW", "lr": 0.1, "weight_decay": 0.05},
            "paramwise_cfg": paramwise,
        },
    )
    bare = model.module if isinstance(model, DistributedDataParallel) else model
    names = {id(p): name for name, p in bare.named_parameters()}
    return {names[id(p)]: g for g in wrapper.optimizer.param_groups for p in g["params"]}


def undecayed(groups: dict[str, dict[str, Any]]) -> set[str]:
    return {name for name, group in groups.items() if group["weight_decay"] == 0}


def position_names(model: nn.Module) -> set[str]:
    return {
        f"{prefix}.{name}"
        for prefix, encoding in position_modules(model).items()
        for name in encoding.no_decay()
    }


@pytest.mark.parametrize("position", [[], RELONLY, ABSREL, [{"type": "Sinusoid2d"}]])
def test_b018_exactly_the_position_parameters_lose_their_decay(
    position: list[dict[str, Any]],
) -> None:
    model = ToyModel(position)
    groups = build(model)
    assert undecayed(groups) == position_names(model)
    assert set(groups) == {name for name, _ in model.named_parameters()}


def test_b018_variants_treat_everything_else_alike() -> None:
    rules = {"norm_decay_mult": 0.0, "custom_keys": {"backbone": {"lr_mult": 0.5}}}
    settings = []
    for position in ([], RELONLY, ABSREL):
        model = ToyModel(position)
        groups = build(model, **rules)
        mine = position_names(model)
        settings.append(
            {n: (g["lr"], g["weight_decay"]) for n, g in groups.items() if n not in mine}
        )
    assert settings[0] == settings[1] == settings[2]


def test_a_rate_factor_survives() -> None:
    model = ToyModel(ABSREL)
    groups = build(model, custom_keys={"backbone": {"lr_mult": 0.1, "decay_mult": 2.0}})
    for name in position_names(model):
        assert groups[name]["lr"] == pytest.approx(0.01)
        assert groups[name]["weight_decay"] == 0
    assert groups["backbone.stages.0.blocks.0.attn.qkv.weight"]["weight_decay"] == 0.1


def test_a_rule_that_matches_nothing_is_refused() -> None:
    with pytest.raises(UserError, match=r"'relative_position_bias_tabel'.*did you mean") as error:
        build(ToyModel(), custom_keys={"relative_position_bias_tabel": {"decay_mult": 0.0}})
    assert "relative_position_bias_table'" in str(error.value)


def test_frozen_parameters_stay_out() -> None:
    model = ToyModel(ABSREL, frozen_stages=1)
    groups = build(model)
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert any("absolute_pos_embed" in name for name in frozen)
    assert set(groups).isdisjoint(frozen)
    assert set(groups) | frozen == {name for name, _ in model.named_parameters()}


def test_a_shared_table_is_optimised_once() -> None:
    model = ToyModel()
    first, second = position_modules(model).values()
    second.relative_position_bias_table = first.relative_position_bias_table
    groups = build(model)
    shared = [name for name in groups if name.endswith("relative_position_bias_table")]
    assert len(shared) == 1
    assert groups[shared[0]]["weight_decay"] == 0


def test_the_name_of_one_parameter_may_be_part_of_another() -> None:
    model = ToyModel()
    encoding = next(iter(position_modules(model).values()))
    encoding.register_parameter("extra", nn.Parameter(torch.ones(1)))
    encoding.no_decay = lambda: ("extra",)
    encoding.register_parameter("extra_scale", nn.Parameter(torch.ones(1)))
    groups = build(model)
    prefix = next(iter(position_modules(model)))
    assert groups[f"{prefix}.extra"]["weight_decay"] == 0
    assert groups[f"{prefix}.extra_scale"]["weight_decay"] == 0.05


def test_ddp_changes_nothing(single_process_group: None) -> None:
    model = ToyModel(ABSREL)
    alone, wrapped = build(model), build(DistributedDataParallel(model))
    settings = [
        {name: (g["lr"], g["weight_decay"]) for name, g in groups.items()}
        for groups in (alone, wrapped)
    ]
    assert settings[0] == settings[1]


def test_the_table_counts_every_parameter_once() -> None:
    model = ToyModel(ABSREL)
    wrapper = build_optim_wrapper(
        model,
        {
            "constructor": "PositionOptimConstructor",
            "optimizer": {"type": "AdamW", "lr": 0.1, "weight_decay": 0.05},
        },
    )
    rows = group_table(wrapper.optimizer, model).splitlines()[2:]
    assert len(rows) == 2  # decayed and not
    tensors = [int(row.split()[2]) for row in rows]
    counts = [int(row.split()[3].replace(",", "")) for row in rows]
    in_position = [int(row.split()[4]) for row in rows]
    assert sum(tensors) == len(list(model.parameters()))
    assert sum(counts) == sum(p.numel() for p in model.parameters())
    assert in_position == [0, 3]


def test_b076_zero_rate_is_explained() -> None:
    model = ToyModel()
    wrapper = build_optim_wrapper(
        model,
        {
            "constructor": "PositionOptimConstructor",
            "optimizer": {"type": "AdamW", "lr": 0.1, "weight_decay": 0.05},
            "paramwise_cfg": {"custom_keys": {"backbone": {"lr_mult": 0.0}}},
        },
    )
    assert "frozen_stages" in group_table(wrapper.optimizer, model)
    frozen = {n: p.clone() for n, p in model.named_parameters() if n.startswith("backbone")}
    for _ in range(5):
        losses = model(torch.randn(2, 3, 16, 16), torch.tensor([0, 1]), mode="loss")
        wrapper.update_params(sum(losses.values()))
    state = model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in frozen.items())


def test_groups_are_plain_dictionaries() -> None:
    """A ConfigDict as mmengine makes of a config's optimiser would be slow in every step."""
    cfg = ConfigDict(constructor="PositionOptimConstructor", optimizer={"type": "SGD", "lr": 0.1})
    wrapper = build_optim_wrapper(ToyModel(RELONLY), cfg)
    assert {type(group) for group in wrapper.param_groups} == {dict}
