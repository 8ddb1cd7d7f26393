"""Takes wrappers off a checkpoint and recognises the layout by its names."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from relpos_mm.transfer.errors import TransferError
from relpos_mm.transfer.layouts import LAYOUTS, OFFICIAL, READABLE, TIMM, Layout
from relpos_mm.transfer.published import find_published

CONTAINERS = ("state_dict", "model", "model_state_dict", "model_state", "net", "module")
EMA_CONTAINERS = ("state_dict_ema", "model_ema", "ema", "ema_state_dict")


def unwrap(checkpoint: Any, *, ema: bool = False) -> dict[str, Tensor]:
    """Return the state dict inside a checkpoint, which may be the checkpoint itself.

    Args:
        checkpoint: what a file holds.
        ema: take the averaged weights where both kinds are there.

    Raises:
        TransferError: there is no state dict, or no averaged one.
    """
    order: tuple[str, ...] = CONTAINERS + EMA_CONTAINERS
    if ema:
        held = set(checkpoint) if isinstance(checkpoint, Mapping) else set()
        if not held & set(EMA_CONTAINERS):
            raise TransferError(f"no averaged weights: none of {', '.join(EMA_CONTAINERS)} in it")
        # mmengine swaps before saving: its `state_dict` is the average, `ema_state_dict` is raw
        order = CONTAINERS if {"state_dict", "ema_state_dict"} <= held else EMA_CONTAINERS
    node = checkpoint
    while isinstance(node, Mapping) and not any(isinstance(v, Tensor) for v in node.values()):
        inner = next((node[k] for k in order if isinstance(node.get(k), Mapping)), None)
        if inner is None:
            # Several networks side by side, as self-supervised training saves student and teacher.
            node = {
                f"{name}.{key}": value
                for name, part in node.items()
                if isinstance(part, Mapping)
                for key, value in part.items()
                if isinstance(value, Tensor)
            } or node
            break
        node = inner
        order = CONTAINERS + EMA_CONTAINERS
    if not isinstance(node, Mapping):
        raise TransferError(f"a {type(node).__name__} is not a state dict (names and tensors)")
    state = OrderedDict((str(k), v) for k, v in node.items() if isinstance(v, Tensor))
    # What modules noted beside their tensors, such as a reference window.
    state._metadata = getattr(node, "_metadata", {})  # type: ignore[attr-defined]
    if not state:
        raise TransferError(f"no tensors found, only the keys {some(node)}")
    return state


def find_layout(state: Mapping[str, Tensor], prefix: str | None = None) -> tuple[Layout, str]:
    """Tell layout and prefix of the backbone by the names of its attention weights.

    Raises:
        TransferError: no known layout, another architecture, or several backbones.
    """
    if (published := find_published(state)) is not None:
        raise TransferError(published.refusal)
    found: dict[str, list[Layout]] = {}
    for layout in READABLE:
        for key in state:
            hit = layout.templates["qkv"].match_end(key)
            if hit is not None and hit[1].get("part", "") in ("", *layout.qkv_parts):
                layouts = found.setdefault(hit[0], [])
                if layout not in layouts:
                    layouts.append(layout)
    if prefix is not None:
        wanted = prefix.rstrip(".")
        found = {at: layouts for at, layouts in found.items() if at.rstrip(".") == wanted}
    if not found:
        where = "" if prefix is None else f" under the prefix {prefix!r}"
        raise TransferError(
            f"no Swin backbone in any known layout ({', '.join(LAYOUTS)}){where}; the file has "
            f"{len(state)} tensors such as {some(state)}. Nothing can be taken from it"
        )
    if len(found) > 1:
        raise TransferError(
            f"several backbones in one file, under the prefixes {', '.join(sorted(found))}; name "
            "the one to take (--prefix)"
        )
    ((at, layouts),) = found.items()
    if layouts == [OFFICIAL, TIMM]:
        return _official_or_timm(state, at), at
    if len(layouts) > 1:
        names = " and ".join(layout.name for layout in layouts)
        raise TransferError(f"a mixture of the layouts {names} under the prefix {at!r}")
    return layouts[0], at


def _official_or_timm(state: Mapping[str, Tensor], prefix: str) -> Layout:
    """Tell them by the place of merging layers: after a stage (official), before one (timm)."""
    merging = {
        int(key[len(prefix) :].split(".")[1])
        for key in state
        if re.fullmatch(re.escape(prefix) + r"layers\.\d+\.downsample\..*", key)
    }
    stages = {
        int(hit[1]["i"])
        for key in state
        if (hit := OFFICIAL.templates["qkv"].match_end(key)) and hit[0] == prefix
    }
    if merging and max(merging) == max(stages) and 0 not in merging:
        return TIMM
    if merging and max(merging) == max(stages):
        raise TransferError(
            f"merging layers in all of the stages {sorted(merging)}: neither official Swin "
            "(none in the last stage) nor timm (none in the first)"
        )
    return OFFICIAL


def some(keys: Iterable[Any], number: int = 4) -> str:
    """The first few names, for messages."""
    names = [str(key) for key in keys]
    return ", ".join(names[:number]) + (", ..." if len(names) > number else "") or "(none)"
