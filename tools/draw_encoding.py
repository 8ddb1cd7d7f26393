"""Draw what an encoding, or one of a trained checkpoint, says about places."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import relpos_mm  # noqa: F401  registers encodings and models
from relpos_mm.analysis.catalogue import CATALOGUE
from relpos_mm.analysis.draw import draw, example, of_checkpoint
from relpos_mm.engine.cli import run_tool
from relpos_mm.engine.errors import UserError
from relpos_mm.engine.options import count
from relpos_mm.engine.saving import require_writable


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", help=f"one of {', '.join(CATALOGUE)}")
    parser.add_argument("--config", help="draw from a model: its config")
    parser.add_argument("--checkpoint", help="and its weights")
    parser.add_argument("--module", help="part of an encoding's module name (default: the first)")
    parser.add_argument(
        "--grid",
        nargs=2,
        type=count,
        metavar=("H", "W"),
        help="tokens to show (default: of a checkpoint those that the table was built for, a "
        "window or an absolute table's own map; otherwise 14 14)",
    )
    parser.add_argument("--out", type=Path, required=True, help="picture file: .png, .svg or .pdf")
    args = parser.parse_args()
    if (args.config is None) != (args.checkpoint is None) or (args.name is None) == (
        args.config is None
    ):
        raise UserError("give the name of an encoding, or --config and --checkpoint")
    if args.name and args.module:
        raise UserError(f"--module: {args.name} is one encoding; it chooses one of a --config")
    if args.out.suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"--out {args.out}: the file must end in .png, .svg or .pdf")
    require_writable("--out", args.out)
    grid = args.grid and tuple(args.grid)
    if args.name:
        shown, values = example(args.name, grid or (14, 14))
        title = f"{args.name} ({values})"
    else:
        shown, title = of_checkpoint(args.config, args.checkpoint, args.module, grid)
    draw(shown, args.out, title)
    print(f"{title}: {shown.kind} on {tuple(shown.maps.shape[1:])} tokens -> {args.out}")


if __name__ == "__main__":
    sys.exit(run_tool(main))
