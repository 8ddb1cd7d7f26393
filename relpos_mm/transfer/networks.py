"""Names of DETR and DeiT, with and without iRPE, in other code: one table of keys per network.

Sources: the released code of DETR and of iRPE (its DETR and DeiT folders), mmdetection 3, timm.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from relpos_mm.transfer.detect import some
from relpos_mm.transfer.errors import TransferError
from relpos_mm.transfer.layouts import Template
from relpos_mm.transfer.published import find_published

State = dict[str, Tensor]


def _same(state: State) -> State:
    return state


@dataclass(frozen=True)
class Network:
    """Keys of one network: rows of templates, one column per layout.

    Attributes:
        name: What the network is called in messages.
        kind: ``detector`` or ``classifier``.
        columns: Layouts, ``relpos`` first.
        rows: One template per column, empty where a layout has no place for it; the first row that
            matches a key counts.
        probes: Per layout, a key that it has and no other layout of any network.
        head: How the keys of its class outputs begin in ``relpos``.
        layer: Matches the keys of one layer, its number in the first group.
        usual_slug: Absolute encoding of every published model, which slugs leave out.
        no_object: Outputs of the head beside its classes.
        fixed: Encodings without tensors that it was published with.
        arrive: What changes beside names on the way into ``relpos``, after renaming.
        leave: Its inverse, before renaming; both take the other layout's name.
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    probes: Mapping[str, str]
    head: str
    layer: re.Pattern[str]
    usual_slug: str
    no_object: int = 0
    fixed: tuple[dict[str, str], ...] = ()
    arrive: Mapping[str, Callable[[State], State]] = field(default_factory=dict)
    leave: Mapping[str, Callable[[State], State]] = field(default_factory=dict)

    def renamed(self, state: Mapping[str, Tensor], source: str, target: str) -> State:
        """The same tensors under the names of another layout.

        Raises:
            TransferError: A key that the layout ``source`` does not have or ``target`` has no place
                for.
        """
        at, to = self.columns.index(source), self.columns.index(target)
        table = [(Template(row[at]), Template(row[to])) for row in self.rows if row[at]]
        result: State = {}
        unknown, homeless = [], []
        for key, value in state.items():
            hits = ((fields, new) for old, new in table if (fields := old.match(key)) is not None)
            fields, new = next(hits, ({}, None))
            if new is None:
                unknown.append(key)
            elif not new.text:
                homeless.append(key)
            else:
                result[new.fill(fields)] = value
        if unknown:
            raise TransferError(
                f"{len(unknown)} tensors are unknown to the layout {source} of {self.name}: "
                f"{some(unknown)}; this is another network"
            )
        if homeless:
            raise TransferError(
                f"the layout {target} of {self.name} has no place for {len(homeless)} tensors: "
                f"{some(homeless)}; the converted network would be another one"
            )
        return result

    def convert(self, state: Mapping[str, Tensor], source: str, target: str) -> State:
        """From one layout to another, by way of ``relpos``."""
        ours = dict(state)
        if source != "relpos":
            ours = self.arrive.get(source, _same)(self.renamed(state, source, "relpos"))
        if target == "relpos":
            return ours
        return self.renamed(self.leave.get(target, _same)(ours), "relpos", target)


# ------------------------------------------------------------------------------------------- DETR

_LAYER = "encoder.layers.{i}"
_PUBLIC_LAYER = "transformer.encoder.layers.{i}"
_DECODER = "decoder.layers.{i}"
_PUBLIC_DECODER = "transformer.decoder.layers.{i}"
# COCO's 80 classes have ids up to 90. Public DETR has an output for each id from 0 to 90 and one
# for "no object"; OpenMMLab has one per class and one for "no object".
_UNUSED_IDS = (0, 12, 26, 29, 30, 45, 66, 68, 69, 71, 83)
_USED_ROWS = [row for row in range(92) if row not in _UNUSED_IDS]
_CLASSES = "bbox_head.fc_cls"
_NEVER = -100.0  # logit of an id that COCO does not use


def _detr_rows() -> tuple[tuple[str, str, str], ...]:
    layer = [  # relpos, mm, official; all below the layer
        ("attn.qkv.{p}", "self_attn.attn.in_proj_{p}", "self_attn.in_proj_{p}"),
        ("attn.proj.{p}", "self_attn.attn.out_proj.{p}", "self_attn.out_proj.{p}"),
        ("attn.position.contextual_rpe.rpe_{rest}", "", "self_attn.rpe_{rest}"),
        ("ffn.layers.0.0.{p}", "ffn.layers.0.0.{p}", "linear1.{p}"),
        ("ffn.layers.1.{p}", "ffn.layers.1.{p}", "linear2.{p}"),
        ("norm1.{p}", "norms.0.{p}", "norm1.{p}"),
        ("norm2.{p}", "norms.1.{p}", "norm2.{p}"),
    ]
    rows = [
        (f"{_LAYER}.{ours}", mm and f"{_LAYER}.{mm}", f"{_PUBLIC_LAYER}.{public}")
        for ours, mm, public in layer
    ]
    shared = [  # equal in relpos and mm
        (f"{_DECODER}.self_attn.attn.{{rest}}", f"{_PUBLIC_DECODER}.self_attn.{{rest}}"),
        (f"{_DECODER}.cross_attn.attn.{{rest}}", f"{_PUBLIC_DECODER}.multihead_attn.{{rest}}"),
        (f"{_DECODER}.ffn.layers.0.0.{{p}}", f"{_PUBLIC_DECODER}.linear1.{{p}}"),
        (f"{_DECODER}.ffn.layers.1.{{p}}", f"{_PUBLIC_DECODER}.linear2.{{p}}"),
        *(
            (f"{_DECODER}.norms.{n}.{{p}}", f"{_PUBLIC_DECODER}.norm{n + 1}.{{p}}")
            for n in range(3)
        ),
        ("encoder.norm.{p}", "transformer.encoder.norm.{p}"),
        ("decoder.post_norm.{p}", "transformer.decoder.norm.{p}"),
        ("query_embedding.weight", "query_embed.weight"),
        ("neck.convs.0.conv.{p}", "input_proj.{p}"),
        (f"{_CLASSES}.{{p}}", "class_embed.{p}"),
        ("bbox_head.reg_ffn.layers.0.0.{p}", "bbox_embed.layers.0.{p}"),
        ("bbox_head.reg_ffn.layers.1.{p}", "bbox_embed.layers.1.{p}"),
        ("bbox_head.fc_reg.{p}", "bbox_embed.layers.2.{p}"),
        ("backbone.{rest}", "backbone.0.body.{rest}"),
    ]
    return (*rows, *((ours, ours, public) for ours, public in shared))


def _detr_arrive(state: State) -> State:
    """Keep the classes that COCO has, and give batch norms the counter that the library saves."""
    result: State = {}
    for key, value in state.items():
        if key.startswith(_CLASSES) and len(value) == 92:
            value = value[_USED_ROWS]
        result[key] = value
        if key.endswith(".running_var"):
            counter = key.removesuffix("running_var") + "num_batches_tracked"
            result[counter] = torch.zeros((), dtype=torch.int64)
    return result


def _detr_leave(state: State) -> State:
    result: State = {}
    for key, value in state.items():
        if key.endswith(".num_batches_tracked"):
            continue
        if key.startswith(_CLASSES) and len(value) == 81:
            full = value.new_full((92, *value.shape[1:]), 0.0 if value.ndim > 1 else _NEVER)
            full[_USED_ROWS] = value
            value = full
        result[key] = value
    return result


DETR = Network(
    name="DETR",
    kind="detector",
    columns=("relpos", "mm", "official"),
    rows=_detr_rows(),
    probes={
        "relpos": "encoder.layers.0.attn.qkv.weight",
        "mm": "encoder.layers.0.self_attn.attn.in_proj_weight",
        "official": "transformer.encoder.layers.0.self_attn.in_proj_weight",
    },
    head=_CLASSES,
    layer=re.compile(r"encoder\.layers\.(\d+)\.attn\.qkv\.weight"),
    usual_slug="sin2d",
    no_object=1,
    fixed=({"type": "Sinusoid2d"},),
    arrive={"official": _detr_arrive},
    leave={"official": _detr_leave},
)

# ------------------------------------------------------------------------------------------- DeiT

_TABLE = "backbone.position.absolute_table.absolute_pos_embed"
_PREFIX = "backbone.position.absolute_table.prefix_pos_embed"


def _deit_arrive(state: State) -> State:
    """Take the class token's row off the embedding; its grid is the loading model's."""
    rows = state.get(_TABLE)
    if rows is None:
        return state
    return state | {_PREFIX: rows[:, :1].clone(), _TABLE: rows[:, 1:].clone()}


def _deit_leave(state: State) -> State:
    table = state.get(_TABLE)
    if table is None:
        return state
    rows = table.flatten(2).transpose(1, 2) if table.ndim == 4 else table
    rest = {key: value for key, value in state.items() if key != _PREFIX}
    return rest | {_TABLE: torch.cat((state[_PREFIX], rows), dim=1)}


_BLOCK = "backbone.layers.{i}"
DEIT = Network(
    name="DeiT",
    kind="classifier",
    columns=("relpos", "official"),
    rows=(
        ("backbone.cls_token", "cls_token"),
        (_TABLE, "pos_embed"),
        ("backbone.patch_embed.projection.{p}", "patch_embed.proj.{p}"),
        (f"{_BLOCK}.norm1.{{p}}", "blocks.{i}.norm1.{p}"),
        (f"{_BLOCK}.attn.qkv.{{p}}", "blocks.{i}.attn.qkv.{p}"),
        (f"{_BLOCK}.attn.proj.{{p}}", "blocks.{i}.attn.proj.{p}"),
        (f"{_BLOCK}.attn.position.contextual_rpe.rpe_{{rest}}", "blocks.{i}.attn.rpe_{rest}"),
        (f"{_BLOCK}.norm2.{{p}}", "blocks.{i}.norm2.{p}"),
        (f"{_BLOCK}.ffn.layers.0.0.{{p}}", "blocks.{i}.mlp.fc1.{p}"),
        (f"{_BLOCK}.ffn.layers.1.{{p}}", "blocks.{i}.mlp.fc2.{p}"),
        ("backbone.norm.{p}", "norm.{p}"),
        ("head.layers.head.{p}", "head.{p}"),
    ),
    probes={"relpos": "backbone.layers.0.norm1.weight", "official": "blocks.0.attn.qkv.weight"},
    head="head.layers.head",
    layer=re.compile(r"backbone\.layers\.(\d+)\.attn\.qkv\.weight"),
    usual_slug="abs",
    arrive={"official": _deit_arrive},
    leave={"official": _deit_leave},
)


def find_network(state: Mapping[str, Tensor]) -> tuple[Network, str, State] | None:
    """Network, layout and the state without ``module.``, or None when it is neither of the two."""
    if find_published(state) is not None:  # Hiera has some names of DeiT
        return None
    bare = {key.removeprefix("module."): value for key, value in state.items()}
    for network in (DETR, DEIT):
        for layout, probe in network.probes.items():
            if probe in bare:
                return network, layout, bare
    return None
