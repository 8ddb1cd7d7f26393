"""One transfer from file to file: read, fit, check, write."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

from torch import Tensor

from relpos_mm.encodings import position_slug
from relpos_mm.transfer.converting import convert
from relpos_mm.transfer.detect import EMA_CONTAINERS, unwrap
from relpos_mm.transfer.encoding_names import slug_of_configs
from relpos_mm.transfer.errors import TransferError
from relpos_mm.transfer.files import (
    read_checkpoint,
    refuse_target,
    sha256_of,
    write_checkpoint,
    write_safetensors,
)
from relpos_mm.transfer.fit import Fit, file_encodings
from relpos_mm.transfer.layouts import LAYOUTS, RELPOS
from relpos_mm.transfer.meta import backbone_config
from relpos_mm.transfer.networks import find_network
from relpos_mm.transfer.options import Options
from relpos_mm.transfer.position_only import fit_position
from relpos_mm.transfer.report import Report
from relpos_mm.transfer.source import Weights, read_weights
from relpos_mm.transfer.target import Target, build_target, load_config
from relpos_mm.transfer.values import require_values
from relpos_mm.transfer.whole import fit_network, network_of

#: Options that are read where a backbone, or a whole network, is written in another layout.
_EXPORTED = {"grid", "prefix_tokens", "prefix", "ema"}
_EXPORTED_WHOLE = {"ema"}
_TABLES = tuple(each.names["absolute"] for each in LAYOUTS.values() if "absolute" in each.names)


class Refused(TransferError):
    """A transfer with problems; ``report`` tells all of them."""

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__(
            f"{report.source} does not fit {report.config}: {len(report.of('problem'))} problems, "
            f"nothing written\n{report.problems()}{_remedy(report)}"
        )


def transfer_file(
    source: str | Path,
    out: str | Path | None,
    config: str | Path,
    options: Options | None = None,
) -> Report:
    """Bring the weights of ``source`` into the model of ``config`` and write them to ``out``.

    The output is ``{"state_dict": plain tensors, "meta": {"transfer": plain values}}``, for
    ``load_from`` of that config.

    Args:
        source: .pth or .safetensors file in any known layout.
        out: file to write; None writes nothing (dry run).
        config: config of this project: of RelPosSwin, or of a whole DETR or DeiT.
        options: choices; the defaults refuse what is doubtful.

    Raises:
        TransferError: the file or the config cannot be used.
        Refused: they do not fit; carries the report.
    """
    options = options or Options()
    if out is not None:
        refuse_target(source, out)
        if Path(out).suffix == ".safetensors":
            raise TransferError(f"{out}: load_from reads .pth alone; give such a name")
    read = load_config(config)
    model = read.to_dict()["model"]
    stated: dict[str, Any]
    if network_of(model):
        checkpoint = read_checkpoint(source)
        report, state, position = fit_network(checkpoint, read, options, str(source))
        stated = {"position": position}
    else:
        target = build_target(model, str(config))
        checkpoint = read_checkpoint(source)
        report, state = fit_checkpoint(checkpoint, target, options, str(source))
        state = with_windows(state, target)
        stated = {"backbone": target.config}
    report.sha256 = sha256_of(Path(source))
    if report.of("problem"):
        raise Refused(report)
    if out is not None:
        facts = report.facts() | stated
        write_checkpoint(out, {"state_dict": state, "meta": {"transfer": facts}})
    return report


def with_windows(state: dict[str, Tensor], target: Target) -> OrderedDict[str, Tensor]:
    """The state with the reference windows of its encodings, as torch notes them beside it."""
    noted = target.backbone.state_dict()._metadata
    named = OrderedDict(state)
    named._metadata = {  # type: ignore[attr-defined]
        target.prefix + path: facts
        for path, facts in noted.items()
        if "pretrained_window_size" in facts
    }
    return named


def fit_checkpoint(
    checkpoint: Any, target: Target, options: Options, source: str
) -> tuple[Report, dict[str, Tensor]]:
    """Fit what a file holds into a target; returns the report and the state of the whole model.

    Raises:
        TransferError: no usable backbone in the file, or a finished dense model that was not
            asked for.
    """
    if options.position_only:
        return fit_position(unwrap(checkpoint, ema=options.ema), target, options, source)
    try:
        named = unwrap(checkpoint, ema=options.ema)
        if (found := find_network(named)) is not None:
            raise TransferError(
                f"it holds a whole {found[0].name} (layout {found[1]}), but {target.name} has a "
                "Swin backbone. Give a config of that network (detr_*, cls_deit_*), or --to LAYOUT"
            )
        weights = read_weights(named, prefix=options.prefix)
    except TransferError as error:
        raise TransferError(f"{source}: {error}") from error
    _check_kind(weights, options, source)
    _check_use(weights, target, options)
    stated = backbone_config(checkpoint)
    report = Report(
        source=source,
        sha256="",
        layout=weights.layout.name,
        kind=weights.kind,
        file_encoding=slug_of_configs(file_encodings(weights, stated).values()),
        config=target.name,
        config_encoding=position_slug(target.backbone.position_cfg),
        model_tensors=len(target.backbone.state_dict()),
        mode=options.mode,
    )
    fitted = Fit(weights, target, options, stated, report).run()
    state = {target.prefix + key: value.clone() for key, value in fitted.items()}
    state.update(_head(weights, target, options, report))
    if not options.ema:
        other = [name for name in EMA_CONTAINERS if name in checkpoint]
        report.add("dropped", other, "a second set of weights, averaged or raw (--ema)")
    if not report.of("loaded", "resized"):
        report.add("problem", ["backbone"], "no tensor of the file fits the config's backbone")
    return report, state


def _check_use(weights: Weights, target: Target, options: Options) -> None:
    """Refuse options that nothing here would read."""
    types = {str(cfg["type"]) for cfg in target.backbone.position_cfg}
    key = RELPOS.names["absolute"]
    tables = key in weights.backbone or key in target.backbone.state_dict()
    serves = {
        "grid": (tables, "an absolute table, and neither file nor config has one"),
        "prefix_tokens": (tables, "an absolute table, and neither file nor config has one"),
        "fit_tables": (
            bool(types & {"DynamicBias", "LogCoordBias"}),
            f"a config with DynamicBias or LogCoordBias, and {target.name} has neither",
        ),
        "split_absolute": (
            "AbsoluteWin" in types,
            f"a config with AbsoluteWin, and {target.name} has none",
        ),
    }
    for name, (used, what) in serves.items():
        if getattr(options, name) and not used:
            raise TransferError(f"--{name.replace('_', '-')}: serves {what}; leave it out")


def _check_kind(weights: Weights, options: Options, source: str) -> None:
    if weights.kind in ("detector", "segmentor") and not options.take_backbone:
        raise TransferError(
            f"{source}: a finished {weights.kind} (it has {', '.join(sorted(weights.parts))}), "
            "where a classifier or bare backbone is meant. To test it or go on training it, give "
            "it to the tools of its own config; to start another model from its backbone, add "
            "--take-backbone"
        )


def _head(weights: Weights, target: Target, options: Options, report: Report) -> dict[str, Tensor]:
    """The classifier's head where it is asked for; else recorded as not carried."""
    origins = {key: weights.origin[key] for key in weights.head}
    if not options.keep_head:
        report.add("dropped", origins.values(), "the classifier's head (--keep-head)")
        return {}
    shape = (target.num_classes, target.backbone.num_features[-1])
    weight = weights.head.get("head.fc.weight")
    if target.num_classes is None or weight is None:
        side = "config" if target.num_classes is None else "file"
        report.add("problem", ["head.fc.weight"], f"--keep-head, but the {side} is no classifier")
    elif tuple(weight.shape) != shape:
        found = tuple(weight.shape)
        reason = f"{found} in the file, {shape} in the config; set model.head.num_classes"
        report.add("problem", ["head.fc.weight"], reason)
    else:
        report.add("loaded", weights.head, f"head of the {weights.layout.name} file")
        report.head_carried = True
        report.model_tensors += len(weights.head)
        return {key: value.clone() for key, value in weights.head.items()}
    return {}


def _remedy(report: Report) -> str:
    if report.position_transferred or report.encoding_mismatch_allowed:
        return ""
    return (
        f"\nThe position encodings differ: file {report.file_encoding}, config "
        f"{report.config_encoding}. Take the config of the file's encoding or a file of the "
        "config's; --allow-encoding-mismatch starts the missing ones anew and records it."
    )


def export_file(source: str | Path, out: str | Path | None, layout: str, options: Options) -> str:
    """Write the backbone of ``source`` in another layout; returns one line about it.

    Raises:
        TransferError: the file cannot be used, its training failed (NaN or infinite values), the
            layout has no place for its encoding, or an option has no meaning here.
    """
    options.refuse_others(_EXPORTED, "has no effect with --to; leave it out")
    if out is not None:
        refuse_target(source, out)
    named = unwrap(read_checkpoint(source), ema=options.ema)
    if (found := find_network(named)) is not None:
        why = f"has no effect on a whole {found[0].name} with --to; leave it out"
        options.refuse_others(_EXPORTED_WHOLE, why)
    elif not any(key.endswith(_TABLES) for key in named):
        why = "serves an absolute table, and the file has none; leave it out"
        options.refuse_others(_EXPORTED - {"grid", "prefix_tokens"}, why)
    state = convert(
        named,
        target=layout,
        grid=options.grid,
        prefix_tokens=options.prefix_tokens,
        prefix=options.prefix,
    )
    try:
        require_values(state)
    except TransferError as error:
        raise TransferError(f"{source}: {error}") from error
    facts = {"source": str(source), "sha256": sha256_of(Path(source)), "layout": layout}
    plain = {key: value.clone() for key, value in state.items()}
    if out is not None and Path(out).suffix == ".safetensors":
        write_safetensors(out, plain)
    elif out is not None:
        container = "model" if layout == "official" else "state_dict"  # where its loaders look
        write_checkpoint(out, {container: plain, "meta": {"transfer": facts}})
    return f"{len(state)} tensors in the layout {layout}"
