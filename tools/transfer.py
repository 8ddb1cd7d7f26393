"""Bring a checkpoint of this project or of another library into the model of a config.

Examples, layouts and the meaning of the report: docs/transfer.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from relpos_mm.transfer import LAYOUTS, Options, Refused, TransferError, export_file, transfer_file
from relpos_mm.transfer.describe import describe

_CHOICES = {field.name for field in fields(Options)}


def parse_args(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; a wrong combination ends in a usage message."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("source", nargs="?", metavar="SRC", help=".pth or .safetensors file in any known layout")
    add("out", nargs="?", metavar="OUT", help="file to write; not needed with --dry-run")
    add("--config", help="config of this project; OUT is for its load_from")
    add("--to", choices=LAYOUTS, help="instead of --config: write the backbone in this layout")
    add("--inspect", nargs="+", metavar="F", help="say what these files are, and nothing else")
    add("--dry-run", action="store_true", help="report only, write nothing")
    add("--json", metavar="FILE", help="write the report there, too, also of a refused transfer")
    add("--mode", choices=("scale", "extend"), default="scale", help="how bias tables are resized")
    pair: dict[str, Any] = {"nargs": 2, "type": int, "metavar": ("H", "W")}
    add("--grid", **pair, help="grid of the file's absolute embedding, where it is stored flat")
    add("--window", **pair, help="window of the file, where it is not square")
    add("--prefix-tokens", type=int, default=0, metavar="N", help="class rows before it")
    add("--prefix", help="prefix of the backbone, where the file holds several")
    add("--ema", action="store_true", help="take the averaged weights")
    add("--take-backbone", action="store_true", help="out of a finished detector or segmentor")
    add("--allow-encoding-mismatch", action="store_true", help="go on, and record it")
    add("--keep-final-norm", action="store_true", help="carry a classifier's norm to a dense model")
    add("--keep-head", action="store_true", help="carry the head from classifier to classifier")
    add("--fit-tables", action="store_true", help="fit the config's DynamicBias or LogCoordBias")
    add("--split-absolute", action="store_true", help="turn an absolute embedding into AbsoluteWin")
    add("--position-only", action="store_true", help="of a Swin V2 or Hiera file")
    args = parser.parse_args(arguments)
    if args.inspect is None:
        if args.source is None or (args.out is None and not args.dry_run):
            parser.error("give SRC and OUT (or --dry-run, or --inspect)")
        if (args.config is None) == (args.to is None):
            parser.error("give either --config or --to")
        if args.to and args.json:
            parser.error("--json: a report is made with --config or --inspect, not with --to")
    return args


def options_of(args: argparse.Namespace) -> Options:
    """The choices of the command line."""
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in vars(args).items()
        if name in _CHOICES
    }
    return Options(**given)


def main(arguments: list[str] | None = None) -> int:
    """Run; 0 when done, 2 when refused."""
    args = parse_args(arguments)
    try:
        _make_place(args.json)
        return _inspect(args) if args.inspect is not None else _transfer(args)
    except Refused as refusal:
        refusal.report.show()
        _write_json(args.json, refusal.report.to_dict())
        print(f"refused: {refusal}", file=sys.stderr)
    except TransferError as error:
        print(f"refused: {error}", file=sys.stderr)
    except OSError as error:  # a full disk, a folder that may not be written
        print(f"refused: {error.filename or args.out}: {error.strerror or error}", file=sys.stderr)
    return 2


def _inspect(args: argparse.Namespace) -> int:
    found = [describe(path) for path in args.inspect]
    for description in found:
        print(description)
    _write_json(args.json, [description.to_dict() for description in found])
    return 0 if all(description.usable for description in found) else 2


def _transfer(args: argparse.Namespace) -> int:
    out = None if args.dry_run else args.out
    written = "dry run, nothing written" if out is None else f"written: {out}"
    if args.to:
        line = export_file(args.source, out, args.to, options_of(args))
        print(f"{line}; {written}")
        return 0
    report = transfer_file(args.source, out, args.config, options_of(args))
    report.show()
    _write_json(args.json, report.to_dict())
    print(written)
    return 0


def _make_place(path: str | None) -> None:
    """Refuse a report file that cannot be written before OUT is."""
    if path is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).open("a").close()


def _write_json(path: str | None, content: object) -> None:
    if path is not None:
        Path(path).write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
