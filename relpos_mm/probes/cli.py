"""``tools/probe.py``: how an encoding works, shown on trained models."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmengine.device import get_device

from relpos_mm.analysis.tables import markdown_table
from relpos_mm.engine.errors import UserError
from relpos_mm.engine.infer_cli import device_name
from relpos_mm.engine.options import OptionAction
from relpos_mm.engine.saving import require_folder, write_atomically
from relpos_mm.engine.versions import versions

from . import probe as base
from .record import LEVEL, Record, write_record


def main(argv: list[str] | None = None) -> None:
    """Run one probe as the command line says; write records, a table and a figure.

    Raises:
        UserError: Anything the user can repair.
    """
    versions()  # before anyone changes the code under a long measurement
    args, probe, defaults = _parse(argv)
    models = pair(args.models) if probe.needs_model else []
    require_folder("--out", args.out)
    options = getattr(args, "cfg_options", None)
    settings = {name: getattr(args, name) for name in defaults}
    records = []
    for record in probe.records(models, settings, args.device, options):
        args.out.mkdir(parents=True, exist_ok=True)  # not before there is something to write
        same = {name: record.settings.get(name) for name in probe.unmeasured}
        path = write_record(record, args.out, {**defaults, **same})
        print(f"written: {path}", flush=True)
        records.append(record)
    _show(records, args.out)


def _parse(argv: list[str] | None) -> tuple[argparse.Namespace, base.Probe, dict[str, Any]]:
    """Read the command line; return also the probe and the defaults of its own flags."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, dest="probe", metavar="NAME")
    probes, own = {}, {}
    for name, cls in sorted(base.PROBES.module_dict.items()):
        probe = probes[name] = cls()
        one = commands.add_parser(name, help=probe.about, description=probe.about)
        if probe.needs_model:
            one.add_argument(
                "models",
                nargs="+",
                metavar="CONFIG CHECKPOINT...",
                help="a config and its checkpoints; another config may follow with its own",
            )
            one.add_argument("--cfg-options", nargs="+", action=OptionAction, metavar="KEY=VALUE")
        one.add_argument("--device", default=get_device(), type=device_name, help="as cpu, cuda:0")
        one.add_argument("--out", type=Path, default=Path("work_dirs/probes"), help="folder")
        common = {action.dest for action in one._actions}
        probe.add_arguments(one)
        mine = [action.dest for action in one._actions if action.dest not in common]
        own[name] = {dest: one.get_default(dest) for dest in mine}
    args = parser.parse_args(argv)
    return args, probes[args.probe], own[args.probe]


def pair(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return config and checkpoint of every model from ``CONFIG CHECKPOINT... CONFIG ...``.

    Raises:
        UserError: A checkpoint comes before any config, a config has none, or one of either is not
            there.
    """
    pairs, config = [], ""
    for name in names:
        if not name.endswith(".py"):
            if not config:
                raise UserError(f"{name}: a config (.py) comes first, then its checkpoints")
            pairs.append((config, name))
        elif config and (not pairs or pairs[-1][0] != config):
            raise UserError(f"{config}: no checkpoint after it; give CONFIG CHECKPOINT...")
        else:
            config = name
    if not pairs or pairs[-1][0] != config:
        raise UserError(f"{config}: no checkpoint after it; give CONFIG CHECKPOINT...")
    # Before the first of them is measured, which may take minutes.
    for config, checkpoint in pairs:
        for what, path in (("Config", config), ("Checkpoint", checkpoint)):
            if not Path(path).is_file():
                raise UserError(f"{what} not found: {path}")
    return pairs


def _show(records: Sequence[Record], folder: Path) -> None:
    """Write and print the comparison of what was measured now; one figure and table per task."""
    from .show import comparison, figure  # matplotlib takes a second to import

    for task in dict.fromkeys(record.task for record in records):
        of_task = [record for record in records if record.task == task]
        name = "_".join(filter(None, ("probe", of_task[0].probe, task)))
        table = markdown_table(*comparison(of_task))
        notes = [f"* {r.label}: {note}" for r in of_task for note in r.findings.notes]
        parts = [f"# Probe: {of_task[0].probe} {task} ({LEVEL})", table, "\n".join(notes)]
        if svg := figure(of_task):
            write_atomically(folder / f"{name}.svg", svg.encode())
            parts.append(f"![{of_task[0].probe}]({name}.svg)")
        write_atomically(folder / f"{name}.md", ("\n\n".join(filter(None, parts)) + "\n").encode())
        print(f"\n{table}\n\nwritten: {folder / name}.md")
