"""What is true of a run when it starts, as plain values for the log and for result.json."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mmengine.model import BaseTTAModel
from mmengine.runner import Runner
from torch import nn
from torch.utils.data import DataLoader

from relpos_mm.encodings import position_modules, position_slug

from .repeat import SeededDataset

_PRECISION = {"Bfloat16OptimWrapper": "bfloat16", "AmpOptimWrapper": "float16"}


def bare_model(model: nn.Module) -> nn.Module:
    """Return the model without DDP and without mmengine's test-time-augmentation wrapper."""
    while isinstance(inner := getattr(model, "module", None), nn.Module):
        model = inner
    return model


def uses_tta(model: nn.Module) -> bool:
    """Return whether mmengine's test-time augmentation lies around the model."""
    return any(isinstance(module, BaseTTAModel) for module in model.modules())


def data_fact(loader: DataLoader) -> dict[str, Any]:
    """Return class, size and origin of the data set behind a loader."""
    dataset: Any = loader.dataset
    inner = dataset
    while hasattr(inner, "dataset") and (
        isinstance(inner, SeededDataset) or not hasattr(inner, "metainfo")
    ):
        inner = inner.dataset
    root = getattr(inner, "ann_file", "") or getattr(inner, "data_root", "")
    if not root and isinstance(getattr(inner, "data_prefix", None), dict):
        root = next(iter(inner.data_prefix.values()), "")
    return {
        "type": type(inner).__name__,
        "pictures": len(dataset),
        "classes": len(getattr(inner, "metainfo", {}).get("classes") or ()),
        "from": str(root),
    }


def batch_fact(runner: Runner) -> dict[str, Any]:
    """Return the effective batch, the recipe's batch and the factor applied to the rate."""
    loader = runner.train_dataloader
    per_process = loader.batch_size or loader.batch_sampler.batch_size
    accumulation = getattr(runner.optim_wrapper, "_accumulative_counts", 1)
    recipe = runner.auto_scale_lr or {}
    base = recipe.get("base_batch_size")
    scaled = bool(recipe.get("enable")) and bool(base)
    return {
        "effective": per_process * runner.world_size * accumulation,
        "per_process": per_process,
        "processes": runner.world_size,
        "accumulation": accumulation,
        "recipe": base,
        "lr_factor": per_process * runner.world_size / base if scaled else 1.0,
        "lr_scaled": scaled,
    }


def cpu_gemm_fact(runner: Runner) -> dict[str, Any] | None:
    """Return what multiplies float32 matrices, the wish and the reason; None for other runners."""
    route = getattr(runner, "cpu_gemm", None)
    return None if route is None else asdict(route)


def parameter_fact(model: nn.Module) -> dict[str, int]:
    """Return counts of all, frozen and position parameters (each shared one once)."""
    parameters = list(model.parameters())
    position = {
        id(p): p.numel()
        for encoding in position_modules(model).values()
        for p in encoding.parameters()
    }
    return {
        "total": sum(p.numel() for p in parameters),
        "frozen": sum(p.numel() for p in parameters if not p.requires_grad),
        "position": sum(position.values()),
    }


def encoding_fact(model: nn.Module) -> dict[str, Any]:
    """Return slug and modules of the model's encodings; slug None where no part takes any."""
    host = next((part for part in model.modules() if hasattr(part, "position_cfg")), None)
    config: Any = getattr(host, "position_cfg", None)
    modules = position_modules(model)
    return {
        "slug": None if host is None else position_slug(config, getattr(host, "usual_slug", None)),
        "types": [dict(cfg)["type"] for cfg in config or ()],
        "modules": len(modules),
    }


def optimiser_fact(runner: Runner) -> dict[str, Any]:
    """Return optimiser class, initial rate and the numbers of decayed and undecayed tensors."""
    optimizer = runner.optim_wrapper.optimizer
    groups = optimizer.param_groups
    decayed = [bool(g.get("weight_decay")) for g in groups for _ in g["params"]]
    return {
        "type": type(optimizer).__name__,
        "lr": highest_rate(groups),
        "decayed_tensors": sum(decayed),
        "undecayed_tensors": len(decayed) - sum(decayed),
        "precision": _PRECISION.get(type(runner.optim_wrapper).__name__, "float32"),
    }


def highest_rate(groups: list[dict[str, Any]]) -> float:
    """Return the highest initial learning rate of an optimiser's groups."""
    return max(group.get("initial_lr", group["lr"]) for group in groups)
