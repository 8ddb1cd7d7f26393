"""What the command lines of train, test and infer share: flags, config, exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mmengine.config import Config

from relpos_mm.data import require_data
from relpos_mm.data.check.start import check_start
from relpos_mm.data.reading import read_raw_grid
from relpos_mm.environment import MissingOps, require_ops

from .checkpoints import read_checkpoint
from .errors import UserError
from .loading import fit_loaders
from .options import OptionAction, merge_options


def run_tool(main: Callable[[], None]) -> int:
    """Run a tool; print an error that the user can repair as one message and return 2 for it."""
    try:
        main()
    except (UserError, MissingOps) as error:
        rank = os.environ.get("RANK", "0")
        who = "error" if rank == "0" else f"error in process {rank}"
        print(f"{who}: {error}", file=sys.stderr, flush=True)
        return 2
    return 0


def run_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the flags that mmdet's train and test tools have in common."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("config", help="config file")
    parser.add_argument(
        "--work-dir", help="directory of logs and results (default: work_dirs/CONFIG_NAME)"
    )
    parser.add_argument(
        "--cfg-options",
        nargs="+",
        action=OptionAction,
        metavar="KEY=VALUE",
        help='settings that replace the config\'s, e.g. train_dataloader.batch_size=4 or a="[1,2]"',
    )
    parser.add_argument(
        "--launcher",
        choices=["none", "pytorch", "slurm", "mpi"],
        default="none",
        help="job launcher",
    )
    # Launchers pass either spelling; the environment variable, where set, decides.
    parser.add_argument("--local_rank", "--local-rank", type=int, default=0, help=argparse.SUPPRESS)
    return parser


def load_config(path: str, options: dict[str, Any] | None = None) -> Config:
    """Read a config file, merge ``--cfg-options``, and set the one rule for reading pictures.

    Raises:
        UserError: There is no such file, or an option reaches nothing in it.
    """
    if not Path(path).is_file():
        raise UserError(f"Config not found: {path}")
    cfg = Config.fromfile(path)
    if options:
        merge_options(cfg, path, options)
    fit_loaders(cfg)
    read_raw_grid(cfg)
    return cfg


def apply_run_flags(cfg: Config, args: argparse.Namespace) -> None:
    """Set launcher and work directory; the flag wins over the config, the file's name is last."""
    os.environ.setdefault("LOCAL_RANK", str(args.local_rank))
    cfg.launcher = args.launcher
    name = Path(args.config).stem
    cfg.work_dir = args.work_dir or cfg.get("work_dir") or str(Path("work_dirs") / name)
    if cfg.get("default_hooks", {}).get("checkpoint", {}).get("type") == "CheckpointHook":
        cfg.default_hooks.checkpoint.type = "SafeCheckpointHook"


def preflight(cfg: Config, *parts: str) -> None:
    """Check what a run needs before anything is built or written.

    Args:
        cfg: The resolved config.
        *parts: The data that the run reads: ``train``, ``val``, ``test``.

    Raises:
        UserError: A weight file is missing or unreadable.
        relpos_mm.data.MissingData: Data are missing.
        relpos_mm.data.check.start.BadData: Data would give wrong numbers or stop the run.
        relpos_mm.environment.MissingOps: The model needs compiled ops that are missing.
    """
    if cfg.get("default_scope") in ("mmdet", "mmseg"):
        require_ops()
    for path in {*_pretrained_paths(cfg.model), *filter(None, [cfg.get("load_from")])}:
        if "://" not in path:
            read_checkpoint(Path(path).expanduser())
    require_data(cfg, parts)
    check_start(cfg, parts)


def _pretrained_paths(node: Any) -> Iterator[str]:
    """Yield the files that ``init_cfg`` entries anywhere in a model config name."""
    if isinstance(node, Mapping):
        if node.get("type") == "Pretrained" and node.get("checkpoint"):
            yield str(node["checkpoint"])
        for value in node.values():
            yield from _pretrained_paths(value)
    elif isinstance(node, (list, tuple)):
        for value in node:
            yield from _pretrained_paths(value)
