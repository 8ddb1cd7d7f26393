"""``convert``: a state dict of any known layout, renamed and permuted to any other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmengine.logging import print_log
from torch import Tensor

from relpos_mm.transfer import permute
from relpos_mm.transfer.detect import find_layout, some, unwrap
from relpos_mm.transfer.errors import TransferError
from relpos_mm.transfer.layouts import LAYOUTS, RELPOS, Layout, Template
from relpos_mm.transfer.networks import Network, find_network
from relpos_mm.transfer.source import BUFFER, Weights, read_weights


def detect(state_dict: Mapping[str, Any]) -> str:
    """Name the layout: relpos, official, mm, timm, torchvision or hf.

    Older timm files carry official names and are called official. Whole models of DETR (relpos, mm,
    official) and DeiT (relpos, official) are known too, with and without iRPE.

    Raises:
        TransferError: empty, foreign or mixed names, Swin V2, several backbones.
    """
    state = unwrap(state_dict)
    found = find_network(state)
    return find_layout(state)[0].name if found is None else found[1]


def convert(
    state_dict: Mapping[str, Any],
    source: str = "auto",
    target: str = "relpos",
    *,
    grid: tuple[int, int] | None = None,
    prefix_tokens: int = 0,
    prefix: str | None = None,
) -> dict[str, Tensor]:
    """Rename and permute a backbone's weights.

    Nothing is resized, so a round trip returns the same bits.

    Wrappers and prefixes come off. Heads are dropped; index and mask buffers are dropped, and index
    buffers written anew where the target saves them. A classifier's final norm is ``norm3`` of a
    four-stage backbone. What is dropped is logged with counts. DETR and DeiT are converted as whole
    models, heads included (:mod:`relpos_mm.transfer.networks`).

    Args:
        state_dict: names and tensors, or a checkpoint that holds them under ``state_dict`` or
            ``model``.
        source: layout, or "auto".
        target: relpos, official, mm, timm, torchvision or hf.
        grid: (H, W) of a flat absolute embedding (1, rows, C). Without it the embedding stays
            flat, also in the relpos layout, and the backbone that loads it has to know the grid.
        prefix_tokens: rows of class or register tokens at the beginning of a flat embedding.
        prefix: prefix of the backbone where several are in the file.

    Raises:
        TransferError: unknown layout name; see :func:`detect`; a tensor that the target has no
        name for, or a
            tensor of the source's backbone that the layout does not know.
    """
    for name in (target,) if source == "auto" else (source, target):
        if name not in LAYOUTS:
            raise TransferError(f"no layout is called {name!r}; known: {', '.join(LAYOUTS)}")
    if (found := find_network(unwrap(state_dict))) is not None:
        return _convert_network(*found, source, target)
    layout = None if source == "auto" else LAYOUTS[source]
    weights = read_weights(
        unwrap(state_dict), layout, prefix=prefix, grid=grid, prefix_tokens=prefix_tokens
    )
    if weights.unknown:
        raise TransferError(
            f"{len(weights.unknown)} tensors of the backbone are unknown to the layout "
            f"{weights.layout.name}: {', '.join(weights.unknown[:4])}; this is another network"
        )
    state, lost = write_layout(weights, LAYOUTS[target])
    heads = [weights.origin[key] for key in weights.head]
    buffers = [key for key, why in weights.dropped.items() if why == BUFFER]
    others = [key for key in weights.dropped if key not in buffers] + heads + lost
    print_log(
        f"convert {weights.layout.name} -> {target}: {len(weights.backbone) - len(lost)} tensors; "
        f"dropped: {len(buffers)} buffers, {len(others)} others ({some(others, 8)})",
        logger="current",
    )
    return state


def _convert_network(
    network: Network, layout: str, state: dict[str, Tensor], source: str, target: str
) -> dict[str, Tensor]:
    for name in (target,) if source == "auto" else (source, target):
        if name not in network.columns:
            known = ", ".join(network.columns)
            raise TransferError(f"{network.name} has no layout {name!r}; known: {known}")
    if source not in ("auto", layout):
        raise TransferError(f"asked to read the layout {source}, but the names are of {layout}")
    result = network.convert(state, layout, target)
    print_log(
        f"convert {network.name} {layout} -> {target}: {len(state)} tensors become {len(result)}",
        logger="current",
    )
    return result


def write_layout(weights: Weights, layout: Layout) -> tuple[dict[str, Tensor], list[str]]:
    """The backbone in another layout, and the stage norms that this layout has no place for.

    Raises:
        TransferError: a position parameter has no name in the target layout.
    """
    state: dict[str, Tensor] = {}
    lost: list[str] = []
    for canonical, value in weights.backbone.items():
        role, fields = RELPOS.role_of(canonical) or ("", {})
        if role == "stage_norm":
            role = _norm_role(weights, canonical, layout)
        if role == "":
            lost.append(canonical)
        elif role not in layout.names:
            raise TransferError(
                f"{canonical}: the layout {layout.name} has no place for this position encoding, "
                "so the converted network would be another one"
            )
        elif role == "qkv" and layout.qkv_parts:
            for part, third in zip(layout.qkv_parts, value.chunk(3), strict=True):
                state[layout.templates[role].fill(fields | {"part": part})] = third.contiguous()
        else:
            state[layout.templates[role].fill(fields)] = _permuted(weights, role, value, layout)
        if role == "table" and layout.index and (index := permute.square_index(value)) is not None:
            key = Template(layout.index).fill(fields)
            state[key] = index.flatten() if layout.flat_index else index
    return state, lost


def _norm_role(weights: Weights, canonical: str, layout: Layout) -> str:
    """The role that an output norm has in ``layout``; empty where it has none."""
    if not layout.norm_apart or ("stage_norm" in layout.names and not weights.final_norm_only):
        return "stage_norm"
    return "final_norm" if canonical.startswith(f"norm{weights.last_stage}.") else ""


def _permuted(weights: Weights, role: str, value: Tensor, layout: Layout) -> Tensor:
    if layout.unfold and role.startswith("merge_"):
        return permute.merge_to_unfold(value)
    # official code: tokens in its classifier, a map in its dense backbones
    as_tokens = layout.absolute == "tokens" or (
        layout.absolute == "both" and weights.final_norm_only
    )
    return permute.absolute_to_tokens(value) if role == "absolute" and as_tokens else value
