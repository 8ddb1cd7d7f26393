"""A whole DETR or DeiT, heads included, brought to one of this project's configs of it."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from mmengine.config import Config
from torch import Tensor, nn

from relpos_mm.encodings import PositionEncoding, position_modules
from relpos_mm.encodings.absolute_table import AbsoluteTable
from relpos_mm.transfer import permute
from relpos_mm.transfer.detect import some, unwrap
from relpos_mm.transfer.encoding_names import (
    camel,
    config_by_keys,
    option_differences,
    slug_of_configs,
    told_differences,
)
from relpos_mm.transfer.errors import TransferError
from relpos_mm.transfer.meta import position_config
from relpos_mm.transfer.networks import DEIT, DETR, Network, find_network
from relpos_mm.transfer.options import Options
from relpos_mm.transfer.report import Outcome, Report
from relpos_mm.transfer.values import precision_note, value_fault

_HONOURED = {"mode", "grid", "ema", "allow_encoding_mismatch", "keep_head"}
_COUNTER = ".num_batches_tracked"


def network_of(model: Mapping[str, Any]) -> Network | None:
    """The network of a config's ``model`` that is transferred as a whole, if it is one."""
    if str(model.get("type")).split(".")[-1] == "RelPosDETR":
        return DETR
    backbone = model.get("backbone") or {}
    return DEIT if str(backbone.get("type")).split(".")[-1] == "RelPosViT" else None


def file_position(
    state: Mapping[str, Tensor], network: Network, layout: str, stated: list[dict[str, Any]] | None
) -> list[dict[str, Any]]:
    """Configs of a file's encodings: as the file states, else as its tensors tell.

    Args:
        state: Names of the layout relpos.
        network: Network of the file.
        layout: Layout of the file; published files have what the network was published with.
        stated: What the file says itself.
    """
    if stated is not None:
        return stated
    keys: dict[str, list[str]] = {}
    for key in state:
        if name := _encoding(key):
            keys.setdefault(name, []).append(key)
    found = [config_by_keys(name, own) for name, own in keys.items()]
    return found if layout == "relpos" else [*network.fixed, *found]


def fit_network(
    checkpoint: Any, config: Config, options: Options, source: str
) -> tuple[Report, dict[str, Tensor], list[dict[str, Any]]]:
    """Fit a file into the model of ``config``.

    Returns:
        The report, the state to write, and the config's list of encodings.

    Raises:
        TransferError: The file holds another network, or an option has no meaning here.
    """
    network = network_of(config.model)
    assert network is not None
    options.refuse_others(_HONOURED, f"serves Swin alone, {config.filename} has none")
    try:
        found = find_network(unwrap(checkpoint, ema=options.ema))
        if found is None or found[0] is not network:
            raise TransferError(_other_network(checkpoint, found, network, config))
        _, layout, named = found
        state = network.convert(named, layout, "relpos")
    except TransferError as error:
        raise TransferError(f"{source}: {error}") from error
    model = _build(config)
    host: Any = next(part for part in model.modules() if hasattr(part, "position_cfg"))
    stated = position_config(checkpoint)
    in_file = file_position(state, network, layout, stated)
    configured = {str(cfg["type"]): cfg for cfg in host.position_cfg}
    theirs = {str(cfg["type"]): cfg for cfg in in_file}
    report = Report(
        source=source,
        sha256="",
        layout=layout,
        kind=f"{network.kind} ({network.name})",
        file_encoding="",
        config=str(config.filename),
        config_encoding=slug_of_configs(configured.values(), host.usual_slug),
        model_tensors=len(model.state_dict()),
        mode=options.mode,
        whole=True,
    )
    if stated is None and layout == "relpos":
        with_tensors = {_encoding(key) for key in model.state_dict()}
        unseen = configured.keys() - theirs.keys() - with_tensors
        theirs |= {name: configured[name] for name in unseen}
        reason = "has no tensors, and the file does not say whether it was trained with it"
        report.add("new", sorted(unseen), reason)
    report.file_encoding = slug_of_configs(theirs.values(), host.usual_slug)
    fit = _Fit(network, state, model, options, report)
    options_differ = {
        name: option_differences(theirs[name], configured[name], complete=stated is not None)
        for name in configured.keys() & theirs.keys()
    }
    varied = {name: told_differences(found) for name, found in options_differ.items() if found}
    report.other_options = sorted(varied)
    return report, fit.run(configured.keys() ^ theirs.keys(), varied), host.position_cfg


def _build(config: Config) -> nn.Module:
    from relpos_mm.checks.model import build_on_meta  # its imports take long

    try:
        return build_on_meta(config)
    except Exception as error:  # whatever a constructor raises, the config is what is wrong
        raise TransferError(f"{config.filename}: the model cannot be built ({error})") from error


def _other_network(
    checkpoint: Any, found: tuple[Network, str, Any] | None, network: Network, config: Config
) -> str:
    if found is not None:
        held = f"a {found[0].name} in the layout {found[1]}"
    else:
        held = f"tensors such as {some(unwrap(checkpoint))}"
    hint = "; its ResNet comes by init_cfg, without a transfer" if network is DETR else ""
    known = ", ".join(network.columns)
    return (
        f"it holds {held}, but {config.filename} needs a whole {network.name} in one of the "
        f"layouts {known}. Give the config of the file's network, or such a file{hint}"
    )


def _encoding(key: str) -> str | None:
    _, found, rest = f".{key}".partition(".position.")
    return camel(rest.split(".")[0]) if found else None


@dataclass
class _Fit:
    """One attempt to fill a model from a file; every tensor of both sides enters the report."""

    network: Network
    state: dict[str, Tensor]
    model: nn.Module
    options: Options
    report: Report

    def run(self, one_sided: Set[str], varied: Mapping[str, str]) -> dict[str, Tensor]:
        """Compare, resize and sort; returns what the model takes from the file.

        Args:
            one_sided: Encodings that only the file or only the config has.
            varied: Encoding that both have -> options in which they differ.
        """
        self.wanted = {key: tuple(value.shape) for key, value in self.model.state_dict().items()}
        differ = one_sided | varied.keys()
        self._compare(differ, varied)
        resized: dict[str, str] = {}
        for path, module in position_modules(self.model).items():
            if type(module).__name__ not in differ:
                resized |= self._resize(f"{path}.", module)
        settled = {entry.key for entry in self.report.entries}
        extra = [key for key in self.state if key not in self.wanted and key not in settled]
        counters = [key for key in extra if key.endswith(_COUNTER)]
        self.report.add("dropped", counters, "a counter that nothing reads")
        reason = "the config has no such layer (depth, num_layers)"
        self.report.add("problem", [key for key in extra if key not in counters], reason)
        kept = {}
        for key, shape in self.wanted.items():
            if key not in settled and self._settle(key, shape, resized):
                kept[key] = self.state[key].clone()
        if not kept:
            self.report.add("problem", ["model"], "no tensor of the file fits the config's model")
        return kept

    def _compare(self, differ: Set[str], varied: Mapping[str, str]) -> None:
        """Refuse other encodings than the file's, or record the permission to go on."""
        report = self.report
        allowed = bool(differ and self.options.allow_encoding_mismatch)
        report.encoding_mismatch_allowed = allowed
        missing: Outcome = "new" if allowed else "problem"
        surplus: Outcome = "dropped" if allowed else "problem"
        both = f"the file has {report.file_encoding}, the config wants {report.config_encoding}"
        for name in sorted(differ):
            sides = f"{both} ({varied[name]})" if name in varied else both
            ours = [k for k in self.wanted if _encoding(k) == name and k not in self.state]
            extra = [k for k in self.state if _encoding(k) == name and k not in self.wanted]
            report.add(missing, ours, f"not in the file, {name}: {sides}")
            report.add(surplus, extra, f"{name}: {sides}")
            if not ours and not extra:
                report.add(missing, [f"position {name}"], sides)

    def _resize(self, prefix: str, module: PositionEncoding) -> dict[str, str]:
        """Let an encoding bring its own entries to its own shapes; key -> how."""
        key = f"{prefix}absolute_pos_embed"
        table = self.state.get(key)
        try:
            if isinstance(module, AbsoluteTable) and table is not None and table.ndim == 3:
                grid = self.options.grid or module.grid_size
                self.state[key] = permute.absolute_to_map(table, grid)
            records = module.transfer(self.state, prefix, mode=self.options.mode)
        except ValueError as error:
            own = [name for name, _ in module.named_parameters()]
            places = [key for key in (prefix + name for name in own) if str(error).startswith(key)]
            key = (places or [prefix + own[0]])[0]
            self.report.add("problem", [key], str(error).removeprefix(f"{key}: "))
            return {}
        return {one.key: f"{one.old_shape} -> {one.new_shape}, {one.how}" for one in records}

    def _settle(self, key: str, shape: tuple[int, ...], resized: Mapping[str, str]) -> bool:
        """Record what became of one of the model's tensors; whether the file has its value."""
        report, value = self.report, self.state.get(key)
        if value is None:
            counter = key.endswith(_COUNTER)
            reason = "a counter, starts at 0" if counter else "missing in the file (see depth)"
            report.add("new" if counter else "problem", [key], reason)
        elif fault := "" if key.endswith(_COUNTER) else value_fault(value):
            report.add("problem", [key], fault)
        elif tuple(value.shape) == shape:
            if key in resized:
                report.add("resized", [key], resized[key])
            else:
                note = "" if key.endswith(_COUNTER) else precision_note(value)
                report.add("loaded", [key], f"from the {report.layout} file{note}")
            return True
        else:
            found = tuple(value.shape)
            sides = f"{found} in the file, {shape} in the config"
            if key.startswith(self.network.head) and found[1:] == shape[1:]:
                classes = f"{sides}: other classes (num_classes)"
                starts = f"{classes}, so the head starts anew"
                kept = self.options.keep_head
                report.add("problem" if kept else "new", [key], classes if kept else starts)
            else:
                reason = f"{sides}; set embed_dims, num_heads and the like to the file's"
                report.add("problem", [key], reason)
        return False
