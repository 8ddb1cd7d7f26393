"""What an encoding costs in a model: parameters, multiply-adds, memory, and the kernel that runs.

Counted is the part of a model that takes encodings (the host): the backbone, or DETR's encoder.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from mmengine.config import ConfigDict
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from relpos_mm.encodings import Grid, position_modules
from relpos_mm.encodings.grid import Size
from relpos_mm.engine.cli import load_config, require_settings
from relpos_mm.engine.errors import UserError, building
from relpos_mm.engine.facts import encoding_fact, parameter_fact

# Picture (H, W) of each task, as its recipe tests it.
USUAL_SIZE: dict[str, Size] = {
    "classification": (224, 224),
    "detection": (800, 1333),
    "segmentation": (512, 512),
}
_DETR_STRIDE = 32


@dataclass(frozen=True)
class Cost:
    """Cost of one config's encodings; one picture.

    Attributes:
        config: Name of the config.
        encoding: Slug of the list.
        host: Type of the part that takes encodings.
        size: Picture ``(H, W)``.
        params: Parameters of the whole model.
        position_params: Parameters of its encodings.
        by_encoding: The same by name of encoding.
        gmac: Multiply-adds of the host in 10^9, attention products included. Papers call this
            GFLOPs. Norms, softmax, gathers and sums are not counted, by anybody.
        extra_gmac: Thereof due to the list, by difference to the same host with ``[]``.
        activation_mib: Tensors that a training forward keeps for the backward pass.
        extra_mib: Thereof due to the list.
        kernels: How attention is computed without dropout: eager, blocks (of query rows) or
            sdpa.
    """

    config: str
    encoding: str
    host: str
    size: Size
    params: int
    position_params: int
    by_encoding: dict[str, int]
    gmac: float
    extra_gmac: float
    activation_mib: float
    extra_mib: float
    kernels: tuple[str, ...]


def config_cost(path: str | Path, size: Size | None = None) -> Cost:
    """Cost of a config file; ``size`` is the task's usual one when not given.

    Raises:
        UserError: No such file, no config with a model, no model that can be built, or no part of
            it takes encodings.
    """
    cfg = load_config(str(path))
    require_settings(cfg, "model")
    init_default_scope(cfg.get("default_scope", "mmengine"))
    if size is None:
        size = USUAL_SIZE[cfg.get("task", "classification")]
    return model_cost(cfg.model.to_dict(), size, Path(path).stem, file=str(path))


def model_cost(
    model_cfg: Mapping[str, Any],
    size: Size,
    name: str,
    bare: tuple[float, float] | None = None,
    file: str | None = None,
) -> Cost:
    """Cost of a ``model`` dict, or of a backbone's own dict, for one picture of ``size``.

    Args:
        model_cfg: The dict.
        size: Picture ``(H, W)``.
        name: Shown in tables and messages.
        bare: What :func:`bare_cost` gave for the same model, to count many lists faster.
        file: Config file, for messages.

    Raises:
        UserError: It cannot be built, or no part of it takes encodings.
    """
    with building("the model", file or name):
        model = _build(model_cfg)
    host = _host(model)
    if host is None:
        raise UserError(
            f"{file or name}: no part of {model_cfg.get('type')} takes a list of encodings; "
            "give a config whose backbone or encoder has 'position'"
        )
    facts, parameters = encoding_fact(model), parameter_fact(model)
    bare_gmac, bare_memory = bare_cost(model_cfg, size) if bare is None else bare
    (gmac, kernels), memory = _evaluation(host, size), _saved_mib(host, size)
    return Cost(
        config=name,
        encoding=facts["slug"],
        host=type(host).__name__,
        size=size,
        params=parameters["total"],
        position_params=parameters["position"],
        by_encoding=_by_encoding(host),
        gmac=gmac,
        extra_gmac=gmac - bare_gmac,
        activation_mib=memory,
        extra_mib=memory - bare_memory,
        kernels=kernels,
    )


def bare_cost(model_cfg: Mapping[str, Any], size: Size) -> tuple[float, float]:
    """GMAC and MiB kept by the same host without encodings."""
    host = _host(_build(model_cfg, bare=True))
    assert host is not None  # callers have found it
    return _evaluation(host, size)[0], _saved_mib(host, size)


def gmac_share(model_cfg: Mapping[str, Any], size: Size) -> tuple[float, float] | None:
    """GMAC of the host and thereof of its list; None where nothing takes encodings.

    As :func:`model_cost`, in half the time: memory is not looked at.
    """
    counts = []
    for bare in (False, True):
        host = _host(_build(model_cfg, bare))
        if host is None:
            return None
        counts.append(_evaluation(host, size)[0])
    return counts[0], counts[0] - counts[1]


def _build(model_cfg: Mapping[str, Any], bare: bool = False) -> nn.Module:
    """Build a model without its weight files, and without encodings where it is to be bare.

    Every time of a copy: libraries put what they build back into the dict that they are given.
    """
    cfg = ConfigDict(copy.deepcopy(dict(model_cfg)))  # detectors read attributes of it
    _drop_weights(cfg)
    if bare:
        _set_position(cfg, [])
    model: nn.Module = MODELS.build(cfg)
    return model


def _host(model: nn.Module) -> nn.Module | None:
    """The part that takes encodings."""
    return next((part for part in model.modules() if hasattr(part, "position_cfg")), None)


def _drop_weights(node: Any) -> None:
    """Forget pretrained files anywhere in a model dict: nothing is loaded to be counted."""
    if isinstance(node, dict):
        if isinstance(node.get("init_cfg"), dict):
            node["init_cfg"] = None
        node.pop("pretrained", None)
        for value in node.values():
            _drop_weights(value)
    elif isinstance(node, (list, tuple)):
        for value in node:
            _drop_weights(value)


def _set_position(node: dict[str, Any], position: list[Any]) -> None:
    if node.get("type") in ("RelPosSwin", "RelPosViT", "RelPosDetrEncoder", "RelPosDETR"):
        host = node.get("encoder", node)
        host["position"] = position
    for value in node.values():
        if isinstance(value, dict):
            _set_position(value, position)


def _call(host: nn.Module, size: Size) -> Callable[[], Any]:
    """The host's forward on one random picture, or on the feature map of one."""
    from relpos_mm.models import RelPosDetrEncoder

    if isinstance(host, RelPosDetrEncoder):
        grid = (-(-size[0] // _DETR_STRIDE), -(-size[1] // _DETR_STRIDE))
        tokens = torch.zeros(1, grid[0] * grid[1], host.embed_dims)
        return lambda: host(tokens, Grid(grid))
    picture = torch.zeros(1, 3, *size)
    return lambda: host(picture)


def _evaluation(host: nn.Module, size: Size) -> tuple[float, tuple[str, ...]]:
    """Multiply-adds in 10^9, and kernels used.

    On a CPU attention's products are matrix products, or those of blocks, which are counted; of
    the fused CPU kernel torch would count none.
    """
    host.eval()
    with torch.enable_grad(), FlopCounterMode(display=False) as counter:
        result = _call(host, size)()
    return counter.get_total_flops() / 2e9, _kernels(result)


def _saved_mib(host: nn.Module, size: Size) -> float:
    """MiB of distinct memory that training keeps for the backward pass, parameters left out."""
    host.train()
    own = {p.untyped_storage().data_ptr() for p in host.parameters()}
    kept: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = tensor  # holding it keeps the address from being used again
        return tensor

    hooks: AbstractContextManager[Any] = saved_tensors_hooks(pack, lambda tensor: tensor)
    with torch.enable_grad(), hooks:
        result = _call(host, size)()
    del result
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values()) / 2**20


def _kernels(result: Any) -> tuple[str, ...]:
    """How attention was computed, read off the operations that autograd recorded."""
    todo = [out.grad_fn for out in (result if isinstance(result, tuple) else (result,))]
    seen, names = set(todo), set()
    while todo:
        node = todo.pop()
        names.add(node.name())
        new = [parent for parent, _ in node.next_functions if parent not in seen and parent]
        seen.update(new)
        todo += new
    found = {
        label
        for label, operation in (("blocks", "SlicedAttention"), ("sdpa", "ScaledDotProduct"))
        if any(operation in name for name in names)
    }
    return tuple(sorted(found)) or ("eager",)


def _by_encoding(host: nn.Module) -> dict[str, int]:
    """Parameters of each encoding in all places together, each shared one once."""
    counted: set[int] = set()
    counts: dict[str, int] = {}
    for encoding in position_modules(host).values():
        new = [p for p in encoding.parameters() if id(p) not in counted]
        counted.update(map(id, new))
        counts[encoding.name] = counts.get(encoding.name, 0) + sum(p.numel() for p in new)
    return counts
