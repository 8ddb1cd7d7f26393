"""Position parameters of a published network of another kind, brought to a config's encoding."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from relpos_mm.encodings import position_modules, position_slug
from relpos_mm.transfer.encoding_names import encoding_of_key
from relpos_mm.transfer.errors import TransferError
from relpos_mm.transfer.options import Options
from relpos_mm.transfer.published import find_published
from relpos_mm.transfer.report import Report
from relpos_mm.transfer.target import Target

_HONOURED = {"position_only", "ema"}


def fit_position(
    state: Mapping[str, Tensor], target: Target, options: Options, source: str
) -> tuple[Report, dict[str, Tensor]]:
    """Carry the position parameters of a Swin V2 or Hiera file, and nothing else.

    Raises:
        TransferError: The file is neither, or an option has no meaning here.
    """
    options.refuse_others(_HONOURED, "has no effect with --position-only; leave it out")
    published = find_published(state)
    if published is None:
        raise TransferError(
            f"{source}: --position-only is for Swin V2 and Hiera files, of which nothing else "
            "fits; this file is neither, leave the option out"
        )
    wanted = {key: value.shape for key, value in target.backbone.state_dict().items()}
    report = Report(
        source=source,
        sha256="",
        layout=published.network,
        kind="position parameters",
        file_encoding=position_slug([{"type": published.encoding}]),
        config=target.name,
        config_encoding=position_slug(target.backbone.position_cfg),
        model_tensors=len(wanted),
        mode=options.mode,
    )
    entries = dict(published.entries)
    modules = {
        f"{path}.": module
        for path, module in position_modules(target.backbone).items()
        if type(module).__name__ == published.encoding
    }
    if not modules:
        why = f"the config has no {published.encoding}, which a {published.network} file can start"
        report.add("problem", [f"position {published.encoding}"], why)
    resized: dict[str, str] = {}
    for prefix, module in modules.items():
        try:
            records = module.transfer(entries, prefix, mode=options.mode)
        except ValueError as error:
            report.add("problem", [prefix], str(error))
            continue
        for record in records:
            resized[record.key] = f"{record.old_shape} -> {record.new_shape}, {record.how}"
    carried: dict[str, Tensor] = {}
    for key, shape in wanted.items():
        name = target.prefix + key
        if key not in entries and encoding_of_key(key) == published.encoding:
            report.add("problem", [name], "missing in the file; see depths")
        elif key not in entries:
            report.add("new", [name], f"{published.network} has nothing that means the same")
        elif entries[key].shape != shape:
            why = f"{tuple(entries[key].shape)} in the file, {tuple(shape)} in the config"
            report.add("problem", [name], f"{why}; set embed_dims, num_heads and hidden")
        else:
            outcome, why = ("resized", resized[key]) if key in resized else ("loaded", "")
            report.add(outcome, [name], why or f"from the {published.network} file")  # type: ignore[arg-type]
            carried[name] = entries[key].clone()
    used = set(wanted)
    for key, origin in published.origin.items():
        if key not in used:
            why = "coordinates, read for the reference window, or no such parameter in the config"
            report.add("dropped", [origin], why)
    report.add("dropped", published.left, f"{published.network} has other blocks ({published.why})")
    return report, carried
