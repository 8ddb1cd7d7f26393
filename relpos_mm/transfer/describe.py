"""Says what a checkpoint is before anything is done with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import isqrt
from pathlib import Path
from typing import Any

from torch import Tensor

from relpos_mm.transfer.detect import EMA_CONTAINERS, unwrap
from relpos_mm.transfer.encoding_names import slug_of_configs
from relpos_mm.transfer.errors import TransferError
from relpos_mm.transfer.files import read_checkpoint, sha256_of
from relpos_mm.transfer.fit import file_encodings
from relpos_mm.transfer.layouts import RELPOS
from relpos_mm.transfer.meta import backbone_config, position_config
from relpos_mm.transfer.networks import Network, find_network
from relpos_mm.transfer.source import Weights, read_weights
from relpos_mm.transfer.values import require_values
from relpos_mm.transfer.whole import file_position


@dataclass
class Description:
    """Facts about one file; ``problem`` says why it cannot be used, if so.

    Attributes:
        safe: opened without running code; None where there is no file to open.
        window: per stage, (H, W) of square windows, or the rows of other tables.
        absolute: shape of the absolute embedding.
    """

    path: str
    problem: str = ""
    safe: bool = False
    sha256: str = ""
    kind: str = ""
    layout: str = ""
    prefix: str = ""
    encoding: str = ""
    embed_dims: int = 0
    depths: list[int] = field(default_factory=list)
    num_heads: list[int] = field(default_factory=list)
    window: list[str] = field(default_factory=list)
    absolute: list[int] = field(default_factory=list)
    num_classes: int | None = None
    other_parts: list[str] = field(default_factory=list)
    averaged_weights: bool = False
    made_from: str = ""
    parameters: int = 0

    @property
    def usable(self) -> bool:
        """Whether a backbone can be taken from it."""
        return not self.problem

    def to_dict(self) -> dict[str, Any]:
        """Plain values for json."""
        return asdict(self)

    def __str__(self) -> str:
        if self.problem:
            return f"{self.path}: cannot be used: {self.problem}"
        shown = {k: v for k, v in asdict(self).items() if k not in ("path", "problem")}
        lines = [f"  {k:17} {v}" for k, v in shown.items() if v not in ("", [], None)]
        return "\n".join([self.path, *lines])


def describe(path: str | Path) -> Description:
    """Read a file safely and describe it; problems are part of the description."""
    result = Description(str(path))
    try:
        checkpoint = read_checkpoint(path)
        result.safe = True
        result.sha256 = sha256_of(Path(path))
        if (found := find_network(unwrap(checkpoint))) is not None:
            return _describe_network(result, checkpoint, *found)
        weights = read_weights(unwrap(checkpoint))
        require_values({weights.origin.get(key, key): v for key, v in weights.backbone.items()})
    except TransferError as error:
        result.problem = str(error).removeprefix(f"{path}: ")
        return result
    stated = backbone_config(checkpoint)
    result.kind, result.layout, result.prefix = weights.kind, weights.layout.name, weights.prefix
    result.encoding = slug_of_configs(file_encodings(weights, stated).values())
    result.other_parts = sorted(weights.parts)
    result.averaged_weights = any(name in checkpoint for name in EMA_CONTAINERS)
    result.parameters = sum(value.numel() for value in weights.backbone.values())
    head = weights.head.get("head.fc.weight")
    if head is not None:
        result.num_classes = head.shape[0]
    meta = checkpoint.get("meta")
    data = meta.get("dataset_meta") if isinstance(meta, dict) else None
    if result.num_classes is None and isinstance(data, dict) and data.get("classes"):
        result.num_classes = len(data["classes"])
    made = meta.get("transfer", {}) if isinstance(meta, dict) else {}
    result.made_from = str(made.get("source", ""))
    _measure(result, weights)
    return result


def _describe_network(
    result: Description, checkpoint: Any, network: Network, layout: str, state: Mapping[str, Tensor]
) -> Description:
    """Complete the description of a whole DETR or DeiT."""
    require_values(state)
    result.kind, result.layout = f"{network.kind} ({network.name})", layout
    result.parameters = sum(value.numel() for value in state.values())
    ours = network.convert(dict(state), layout, "relpos")
    position = file_position(ours, network, layout, position_config(checkpoint))
    result.encoding = slug_of_configs(position, network.usual_slug)
    layers = {hit[1] for key in ours if (hit := network.layer.fullmatch(key))}
    result.depths = [len(layers)]
    result.embed_dims = next(len(v) for k, v in ours.items() if k.endswith("attn.proj.bias"))
    head = ours.get(f"{network.head}.bias")
    if head is not None:
        result.num_classes = len(head) - network.no_object
    result.averaged_weights = any(name in checkpoint for name in EMA_CONTAINERS)
    return result


def _measure(result: Description, weights: Weights) -> None:
    """Sizes that the shapes tell."""
    blocks: dict[int, int] = {}
    heads: dict[int, int] = {}
    windows: dict[int, str] = {}
    for key, value in weights.backbone.items():
        role, fields = RELPOS.role_of(key) or ("", {})
        stage = int(fields.get("i", 0))
        if role == "qkv" and fields["p"] == "weight":
            blocks[stage] = blocks.get(stage, 0) + 1
        elif role == "table":
            side = isqrt(value.shape[0])
            square = side * side == value.shape[0] and side % 2 == 1
            window = f"{(side + 1) // 2}x{(side + 1) // 2}"
            windows[stage] = window if square else f"{value.shape[0]} rows"
            heads[stage] = value.shape[1]
        elif role == "absolute":
            result.absolute = list(value.shape)
        elif role == "patch" and fields["p"] == "weight":
            result.embed_dims = value.shape[0]
    result.depths = [blocks[stage] for stage in sorted(blocks)]
    result.num_heads = [heads[stage] for stage in sorted(heads)]
    result.window = [windows[stage] for stage in sorted(windows)]
