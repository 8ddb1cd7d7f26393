"""The content of a state dict, sorted: backbone, head, and what is not carried."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from relpos_mm.transfer import permute
from relpos_mm.transfer.detect import find_layout
from relpos_mm.transfer.errors import TransferError
from relpos_mm.transfer.layouts import OFFICIAL, READABLE, RELPOS, TIMM, Layout, Template

_BUFFER = re.compile(
    r"(.*\.)?(relative_position_index|attn_mask|relative_coords_table|rope_t_[xy])"
)
BUFFER = "index, mask and coordinate buffers are rebuilt"
_DETECTOR = {"rpn_head", "roi_head", "bbox_head", "mask_head", "panoptic_head", "query_embedding"}
_SEGMENTOR = {"decode_head", "auxiliary_head"}
_CLASSIFIER = {"head", "classifier"}
_HEADS = [Template(text) for text in sorted({layout.head for layout in READABLE})]


@dataclass
class Weights:
    """The content of a state dict, by canonical name and without prefixes.

    Attributes:
        backbone: canonical key -> tensor. An absolute embedding is (1, C, H, W) where its grid is
            known, else still (1, rows, C).
        origin: canonical key -> key in the file (the first one where several were joined).
        head: ``head.fc.weight`` and ``head.fc.bias`` of a classifier.
        dropped: key in the file -> why it is not carried.
        unknown: keys of the backbone's body that the layout does not know.
        parts: names of everything else in the file, such as ``rpn_head``.
        windows: dotted path of a module, with the final dot -> its reference window.
        fixed: type -> config of encodings that the file has as buffers only.
        kind: classifier, detector, segmentor or backbone.
    """

    layout: Layout
    prefix: str
    backbone: dict[str, Tensor] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    head: dict[str, Tensor] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    parts: set[str] = field(default_factory=set)
    windows: dict[str, tuple[int, int]] = field(default_factory=dict)
    fixed: dict[str, dict[str, Any]] = field(default_factory=dict)
    kind: str = "backbone"

    @property
    def stage_norms(self) -> list[str]:
        """Canonical keys of the output norms."""
        return [key for key in self.backbone if RELPOS.templates["stage_norm"].match(key)]

    @property
    def final_norm_only(self) -> bool:
        """Whether the only output norm is that of the last stage, as in classifiers."""
        return {key.split(".")[0] for key in self.stage_norms} == {f"norm{self.last_stage}"}

    @property
    def last_stage(self) -> int:
        """Number of the last stage, counted from zero."""
        qkv = RELPOS.templates["qkv"]
        return max(int(hit["i"]) for key in self.backbone if (hit := qkv.match(key)))


def read_weights(
    state: Mapping[str, Tensor],
    layout: Layout | None = None,
    *,
    prefix: str | None = None,
    grid: tuple[int, int] | None = None,
    prefix_tokens: int = 0,
) -> Weights:
    """Sort a state dict into backbone (canonical names and channel order), head and the rest.

    Args:
        state: names and tensors, any prefix.
        layout: None detects it.
        prefix: prefix of the backbone where several are in the file.
        grid: (H, W) of a flat absolute embedding.
        prefix_tokens: rows of class or register tokens at its beginning.

    Raises:
        TransferError: see :func:`find_layout`, :func:`permute.absolute_to_map`; incomplete thirds
        of a qkv.
    """
    detected, at = find_layout(state, prefix)
    older_timm = detected is OFFICIAL and layout is TIMM  # its names were the official ones
    if layout is not None and layout.name != detected.name and not older_timm:
        raise TransferError(
            f"asked to read the layout {layout.name}, but the names are those of {detected.name}"
        )
    weights = Weights(detected, at)
    thirds: dict[str, dict[str, Tensor]] = {}
    for key, value in state.items():
        _sort_key(weights, key, value, thirds)
    for canonical, parts in thirds.items():
        absent = [part for part in detected.qkv_parts if part not in parts]
        if absent:
            first = weights.origin[canonical]
            raise TransferError(f"{first}: its sibling {', '.join(absent)} is not in the file")
        if len({value.dtype for value in parts.values()}) > 1:  # joining would change some
            raise TransferError(f"{weights.origin[canonical]}: its siblings have other dtypes")
        weights.backbone[canonical] = torch.cat([parts[part] for part in detected.qkv_parts])
    absolute = RELPOS.names["absolute"]
    if absolute in weights.backbone:
        table = weights.backbone[absolute]
        weights.backbone[absolute] = permute.absolute_to_map(table, grid, prefix_tokens)
    for path, facts in getattr(state, "_metadata", {}).items():
        if path.startswith(at) and "pretrained_window_size" in facts:
            height, width = facts["pretrained_window_size"]
            weights.windows[f"{path[len(at) :]}."] = (height, width)
    _settle_axial(weights)
    _settle_final_norm(weights)
    weights.kind = _kind(weights)
    return weights


def _sort_key(
    weights: Weights, key: str, value: Tensor, thirds: dict[str, dict[str, Tensor]]
) -> None:
    """Put one entry of the file where it belongs."""
    if _BUFFER.fullmatch(key):
        weights.dropped[key] = BUFFER
        return
    if key.endswith("mask_token"):
        weights.dropped[key] = "serves masked pre-training only"
        return
    layout = weights.layout
    inside = key.startswith(weights.prefix)
    name = key[len(weights.prefix) :] if inside else key.removeprefix(_parent(weights.prefix))
    hit = layout.role_of(name)
    if hit is None or not (inside or hit[0] == "stage_norm"):
        # transformers keeps the norms of stage outputs beside its backbone, but nothing else
        _sort_other(weights, key, name, value, inside)
        return
    role, fields = hit
    canonical = RELPOS.templates[role].fill(fields)
    if canonical in weights.backbone and "part" not in fields:
        raise TransferError(f"{key} and {weights.origin[canonical]} are one tensor of the backbone")
    weights.origin.setdefault(canonical, key)
    if "part" in fields:
        thirds.setdefault(canonical, {})[fields["part"]] = value
    elif layout.unfold and role.startswith("merge_"):
        value = permute.merge_from_unfold(value)
    weights.backbone[canonical] = value  # a third keeps the place until all three are joined


def _sort_other(weights: Weights, key: str, name: str, value: Tensor, inside: bool) -> None:
    """Put away an entry that is no known part of a backbone."""
    first = name.split(".")[0]
    hit = next((hit for head in _HEADS if (hit := head.match(name))), None)
    if hit is not None:
        canonical = Template(RELPOS.head).fill(hit)
        weights.parts.add(first)
        if canonical in weights.head:
            weights.dropped[key] = f"a second head beside {weights.origin[canonical]}"
        else:
            weights.head[canonical], weights.origin[canonical] = value, key
    elif inside and first in weights.layout.roots:
        weights.unknown.append(key)
    else:
        weights.parts.add(first)
        weights.dropped[key] = f"{first} is no part of the backbone"


def _parent(prefix: str) -> str:
    """``module.backbone.`` -> ``module.``, where heads stand."""
    return prefix[: prefix.rstrip(".").rfind(".") + 1]


def _settle_final_norm(weights: Weights) -> None:
    """Name a classifier's final norm as the norm of its last stage, unless it has those too."""
    final = RELPOS.templates["final_norm"]
    beside = bool(weights.stage_norms)
    for key in [key for key in weights.backbone if final.match(key)]:
        value, origin = weights.backbone.pop(key), weights.origin.pop(key)
        if beside:
            weights.dropped[origin] = "final norm; the norms of the stage outputs are used"
            continue
        fields = {"i": str(weights.last_stage)} | (final.match(key) or {})
        named = RELPOS.templates["stage_norm"].fill(fields)
        weights.backbone[named], weights.origin[named] = value, origin


def _settle_axial(weights: Weights) -> None:
    """Tell rope-vit's axial frequencies, which it saves under the name of the mixed ones."""
    rope = RELPOS.templates["rope"]
    tables = {key: value for key, value in weights.backbone.items() if rope.match(key)}
    if weights.layout is RELPOS or not all(_is_axial(table) for table in tables.values()):
        return
    for key, table in tables.items():
        bands = table[0, 0, : table.shape[-1] // 2].double()  # theta^(-4 t / d), d = 2 d/2
        theta = float((bands[0] / bands[1]) ** (table.shape[-1] / 2)) if len(bands) > 1 else 0.0
        weights.fixed["AxialRope"] = {"type": "AxialRope", "theta": round(theta, 2)}
        del weights.backbone[key]
        why = f"fixed axial frequencies (theta {theta:.4g}) are recomputed"
        weights.dropped[weights.origin.pop(key)] = why


def _is_axial(table: Tensor) -> bool:
    """Whether the first half of the pairs turns with the column alone, the second with the row."""
    half = table.shape[-1] // 2
    crossed = torch.cat((table[0, :, half:], table[1, :, :half]))
    return bool(crossed.abs().max() < 1e-6) and torch.equal(
        table[0, :, :half], table[0, :1, :half].expand(table.shape[1], -1)
    )


def _kind(weights: Weights) -> str:
    if weights.parts & _SEGMENTOR:
        return "segmentor"
    if weights.parts & _DETECTOR:
        return "detector"
    # official dense code has one norm per stage output, a classifier one behind its last stage
    classifier = weights.parts & _CLASSIFIER or weights.final_norm_only
    return "classifier" if classifier else "backbone"
