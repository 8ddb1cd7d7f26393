"""One encoding's parameters turned into another's, where that keeps what the file has learned."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt
from typing import TYPE_CHECKING, Any

from relpos_mm.encodings import position_modules
from relpos_mm.encodings.absolute_win import AbsoluteWin, split_absolute
from relpos_mm.encodings.dynamic_bias import DynamicBias
from relpos_mm.encodings.log_coord_bias import LogCoordBias
from relpos_mm.encodings.resize import resize_bicubic
from relpos_mm.transfer.encoding_names import slug_of_configs
from relpos_mm.transfer.layouts import RELPOS
from relpos_mm.transfer.table_fit import fit_table

if TYPE_CHECKING:
    from relpos_mm.transfer.fit import Fit

_ABSOLUTE = RELPOS.names["absolute"]
_CONTINUOUS = ("DynamicBias", "LogCoordBias")


def convert_encodings(
    fit: Fit, in_file: dict[str, dict[str, Any]], configured: Mapping[str, Mapping[str, Any]]
) -> str:
    """Carry out the conversions that the options ask for.

    Args:
        fit: The transfer; its state and report change.
        in_file: Encodings of the file by type; what was converted becomes the config's.
        configured: Encodings of the config by type.

    Returns:
        A hint to the option that would help where one is off, else an empty text.
    """
    missing = configured.keys() - in_file.keys()
    extra = in_file.keys() - configured.keys()
    hint = ""
    for source, target, option in [
        *(("RelativeBias", name, "fit_tables") for name in _CONTINUOUS),
        ("AbsoluteTable", "AbsoluteWin", "split_absolute"),
    ]:
        if source not in extra or target not in missing:
            continue
        if not getattr(fit.options, option):
            hint += f"; --{option.replace('_', '-')} makes the one of the other"
            continue
        if option == "fit_tables":
            _fit_tables(fit, target)
        else:
            _split_absolute(fit)
        del in_file[source]
        in_file[target] = dict(configured[target])
        extra = extra - {source}
        fit.file_encodings[target] = fit.file_encodings.pop(source, [])
        fit.report.converted_encoding = slug_of_configs(in_file.values())
    return hint


def _fit_tables(fit: Fit, name: str) -> None:
    """Fit every block's continuous bias to the table of that block."""
    for path, module in position_modules(fit.target.backbone).items():
        if not isinstance(module, DynamicBias | LogCoordBias) or type(module).__name__ != name:
            continue
        key = f"{path.rpartition('.')[0]}.relative_bias.relative_position_bias_table"
        table = fit.state.get(key)
        if table is None:
            continue  # the parameters then count as missing
        known = fit.known_window(key)
        side = (isqrt(len(table)) + 1) // 2
        window = known or (side, side)
        try:
            found = fit_table(module, table, window)
        except ValueError as error:
            fit.put_away(key, "problem", str(error))
            continue
        fit.put_away(key, "dropped", f"a {name} of the config was fitted to it")
        for own, value in found.state.items():
            fit.state[f"{path}.{own}"] = value
            if own == "logit_scale":
                fit.record(f"{path}.{own}", "new", "cosine attention; the file has dot products")
            else:
                reason = f"fitted to the table of window {window[0]}x{window[1]}: {found}"
                fit.record(f"{path}.{own}", "resized", reason)
        fit.weights.windows[f"{path}."] = window


def _split_absolute(fit: Fit) -> None:
    """Split the plain embedding into the part that repeats with the windows, and the rest."""
    fit.unflatten()
    table = fit.state.get(_ABSOLUTE)
    if table is None:
        return  # its grid is a problem of its own
    for path, module in position_modules(fit.target.backbone).items():
        if not isinstance(module, AbsoluteWin):
            continue
        if table.ndim != 4 or table.shape[1] != module.pos_embed.shape[1]:
            reason = f"{tuple(table.shape)} does not fit; --grid and embed_dims must be the file's"
            fit.put_away(_ABSOLUTE, "problem", reason)
            return
        window, rest = split_absolute(table, module.window_size)
        grid = (table.shape[2], table.shape[3])
        part = resize_bicubic(rest, module.global_size, module.antialias)
        change = (resize_bicubic(part, grid, module.antialias) - rest).square().mean().sqrt()
        share = (change / table.square().mean().sqrt().clamp(min=1e-12)).item()
        kept = "the sum is kept"
        if share > 1e-6:
            kept = f"the sum changes by {share:.1%} (rms); global_size={grid} keeps it"
        fit.put_away(_ABSOLUTE, "dropped", "split into the config's absolute-win embedding")
        parts = {"pos_embed_window": window, "pos_embed": part}
        for own, value in parts.items():
            fit.state[f"{path}.{own}"] = value
            reason = f"split off the {grid[0]}x{grid[1]} embedding of the file, {kept}"
            fit.record(f"{path}.{own}", "resized", reason)
