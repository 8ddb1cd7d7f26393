"""Optimiser groups in which no position parameter is decayed."""

from __future__ import annotations

import logging
from difflib import get_close_matches
from typing import Any

from mmengine.logging import MMLogger, print_log
from mmengine.optim import DefaultOptimWrapperConstructor, OptimWrapper
from mmengine.registry import OPTIM_WRAPPER_CONSTRUCTORS, OPTIMIZERS
from torch import nn
from torch.optim import Optimizer

from relpos_mm.encodings import position_modules

from .errors import UserError
from .facts import bare_model


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class PositionOptimConstructor(DefaultOptimWrapperConstructor):
    """mmengine's constructor, plus: what an encoding lists in ``no_decay()`` is not decayed.

    Only the weight decay of those parameters changes; a learning-rate factor that
    ``paramwise_cfg`` gives them stays. Configs therefore need no key per encoding, and two configs
    that differ in ``position`` alone treat everything else alike.

    A parameter that several modules share is optimised once, under the rule of its first name.

    Raises:
        UserError: There is no such optimiser, or a key of ``paramwise_cfg.custom_keys`` is part of
            no parameter's name.
    """

    paramwise_cfg: dict[str, Any]

    def __call__(self, model: nn.Module) -> OptimWrapper:
        model = bare_model(model)
        _require_optimizer(self.optimizer_cfg.get("type"))
        _require_matches(self.paramwise_cfg.get("custom_keys", {}), model)
        # Without any rule mmengine would hand over one bare list of parameters, frozen ones too.
        self.paramwise_cfg = {"bypass_duplicate": True, **self.paramwise_cfg}
        self._undecayed = {
            id(encoding.get_parameter(name))
            for encoding in position_modules(model).values()
            for name in encoding.no_decay()
        }
        logger = MMLogger.get_current_instance()
        # mmengine says two lines for every parameter; the table below says the same in five.
        logger.addFilter(_is_no_parameter_line)
        try:
            wrapper = super().__call__(model)
        finally:
            logger.removeFilter(_is_no_parameter_line)
        # mmengine leaves ConfigDicts, one per parameter, which are slow to read in every step.
        wrapper.optimizer.param_groups[:] = map(dict, wrapper.optimizer.param_groups)
        print_log(group_table(wrapper.optimizer, model), logger="current")
        return wrapper

    def add_params(
        self,
        params: list[dict[str, Any]],
        module: nn.Module,
        prefix: str = "",
        is_dcn_module: int | float | None = None,
    ) -> None:
        """Add the groups of ``module``, one per parameter, then take decay from the encodings'."""
        super().add_params(params, module, prefix=prefix, is_dcn_module=is_dcn_module)
        if prefix:  # mmengine recurses through this method; the outermost call sees every group
            return
        for group in params:
            if id(group["params"][0]) in self._undecayed:
                group["weight_decay"] = 0.0
                if "decay_mult" in group:
                    group["decay_mult"] = 0.0


def _require_optimizer(name: Any) -> None:
    if not isinstance(name, str) or OPTIMIZERS.get(name) is not None:
        return
    near = get_close_matches(name, OPTIMIZERS.module_dict, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise UserError(f"optim_wrapper.optimizer: no optimiser is called {name!r}{hint}")


def group_table(optimizer: Optimizer, model: nn.Module) -> str:
    """Return a table of the optimiser's groups, merged by learning rate and weight decay."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    position = {
        id(parameter)
        for encoding in position_modules(model).values()
        for parameter in encoding.parameters()
    }
    merged: dict[tuple[float, float], list[nn.Parameter]] = {}
    for group in optimizer.param_groups:
        key = (group.get("initial_lr", group["lr"]), group.get("weight_decay", 0.0))
        merged.setdefault(key, []).extend(group["params"])
    lines = [
        "Optimiser groups:",
        "        lr     decay  tensors   parameters  position  first tensor",
    ]
    for (lr, decay), members in sorted(merged.items(), reverse=True):
        count = sum(parameter.numel() for parameter in members)
        of_position = sum(id(parameter) in position for parameter in members)
        first = names.get(id(members[0]), "?")
        lines.append(
            f"{lr:10.3g}{decay:10.3g}{len(members):9d}{count:13,d}{of_position:10d}  {first}"
        )
    if any(lr == 0 for lr, _ in merged):
        lines.append(
            "lr 0 does not freeze a module: batch statistics and drop path go on. "
            "Freeze a backbone with frozen_stages."
        )
    return "\n".join(lines)


def _require_matches(custom_keys: dict[str, Any], model: nn.Module) -> None:
    # mmengine compares with the dotted name, which starts with a dot for the model's own parameters
    names = [name if "." in name else f".{name}" for name, _ in model.named_parameters()]
    for key in custom_keys:
        if any(key in name for name in names):
            continue
        near = get_close_matches(key, {part for name in names for part in name.split(".")}, n=1)
        hint = f"did you mean '{near[0]}'?" if near else "remove the key or correct it."
        raise UserError(
            f"optim_wrapper.paramwise_cfg.custom_keys: '{key}' is part of no parameter's name, "
            f"so the rule would do nothing; {hint}"
        )


def _is_no_parameter_line(record: logging.LogRecord) -> bool:
    message = record.getMessage()
    return not (
        message.startswith("paramwise_options --") or "since its requires_grad=False" in message
    )
