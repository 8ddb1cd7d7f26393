"""What the command lines of train, test and infer share: flags, config, exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.registry import MODELS

from relpos_mm.data import require_data
from relpos_mm.data.check.start import check_start
from relpos_mm.data.reading import read_raw_grid
from relpos_mm.environment import MissingOps, require_ops
from relpos_mm.models.renamed_arguments import refuse_unknown

from .checkpoints import read_checkpoint
from .compiling import KEY as COMPILE
from .compiling import compile_options
from .cpu_gemm import settle_wish
from .errors import UserError
from .loading import fit_loaders
from .numbers_check import check_numbers
from .options import OptionAction, merge_options
from .saving import require_folder


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
    parser.add_argument(
        "--evidence",
        action="store_true",
        help="also keep, in the work directory, what a bootstrap over pictures needs",
    )
    # Launchers pass either spelling; the environment variable, where set, decides.
    parser.add_argument("--local_rank", "--local-rank", type=int, default=0, help=argparse.SUPPRESS)
    return parser


def load_config(path: str, options: dict[str, Any] | None = None) -> Config:
    """Read a config file and settle it, see :func:`read_config` and :func:`settled`."""
    return settled(read_config(path), path, options)


def read_config(path: str) -> Config:
    """Read a config file with its bases, as it is written.

    Raises:
        UserError: There is no such file, or it is no config.
    """
    if not Path(path).is_file():
        raise UserError(f"Config not found: {path}")
    try:
        return Config.fromfile(path)
    except Exception as error:  # a config is code: anything can go wrong in it
        raise UserError(
            f"{path}: not a readable config: {type(error).__name__}: {error}"
        ) from error


def settled(cfg: Config, path: str, options: dict[str, Any] | None = None) -> Config:
    """Merge ``--cfg-options`` into a config, and set the one rule for reading pictures.

    Args:
        cfg: As read; it is changed and returned.
        path: Its file, for messages.
        options: ``--cfg-options``.

    Raises:
        UserError: An option reaches nothing in it, or ``cpu_gemm`` or ``compile_backbone`` is
            wrong.
    """
    if options:
        merge_options(cfg, path, options)
    fit_loaders(cfg)
    read_raw_grid(cfg)
    settle_wish(cfg)
    compile_options(cfg.get(COMPILE, False))
    return cfg


def require_settings(cfg: Config, *names: str) -> None:
    """Refuse a config that lacks what a tool is going to read.

    Args:
        cfg: The resolved config.
        *names: Top-level settings that have to be dictionaries.

    Raises:
        UserError: Some are not there, or of another kind.
    """
    absent = [name for name in names if not isinstance(cfg.get(name), Mapping)]
    if absent:
        raise UserError(
            f"{cfg.filename}: no {' = dict(...), no '.join(absent)} = dict(...) in it; give a "
            "config that describes a whole run, as those in configs/"
        )


def apply_run_flags(cfg: Config, args: argparse.Namespace) -> None:
    """Set launcher and work directory; the flag wins over the config, the file's name is last.

    Raises:
        UserError: The work directory cannot be made.
    """
    os.environ.setdefault("LOCAL_RANK", str(args.local_rank))
    cfg.launcher = args.launcher
    if (
        args.launcher == "none"
        and {"TORCHELASTIC_RUN_ID", "RANK", "MASTER_ADDR"} <= os.environ.keys()
    ):
        # Otherwise every process would train alone, into the same folder.
        cfg.launcher = "pytorch"
        if os.environ["RANK"] == "0":
            print("Started by torchrun: --launcher pytorch is taken", flush=True)
    name = Path(args.config).stem
    cfg.work_dir = args.work_dir or cfg.get("work_dir") or str(Path("work_dirs") / name)
    require_folder("--work-dir", Path(cfg.work_dir))
    if cfg.get("default_hooks", {}).get("checkpoint", {}).get("type") == "CheckpointHook":
        cfg.default_hooks.checkpoint.type = "SafeCheckpointHook"


def preflight(cfg: Config, *parts: str) -> None:
    """Check what a run needs before anything is built or written.

    Args:
        cfg: The resolved config.
        *parts: The data that the run reads: ``train``, ``val``, ``test``.

    Raises:
        UserError: A weight file is missing or unreadable, the backbone has no such argument, or a
            number is one that no run can have.
        relpos_mm.data.MissingData: Data are missing.
        relpos_mm.data.check.start.BadData: Data would give wrong numbers or stop the run.
        relpos_mm.environment.MissingOps: The model needs compiled ops that are missing.
    """
    check_numbers(cfg)
    if cfg.get("default_scope") in ("mmdet", "mmseg"):
        require_ops()
    files = {cfg.get("load_from")}
    for at, part in _mappings(cfg.model, "model"):
        _check_arguments(at, part)
        files |= _weight_files(at, part)
    for path in filter(None, files):
        if "://" not in path:
            read_checkpoint(Path(path).expanduser())
    require_data(cfg, parts)
    check_start(cfg, parts)


def _mappings(node: Any, at: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every mapping in a config with its dotted path."""
    if isinstance(node, Mapping):
        yield at, node
        for key, value in node.items():
            yield from _mappings(value, f"{at}.{key}")
    elif isinstance(node, (list, tuple)):
        for index, value in enumerate(node):
            yield from _mappings(value, f"{at}[{index}]")


def _check_arguments(at: str, part: Mapping[str, Any]) -> None:
    """Refuse names that a backbone of this project has not, before anything is written."""
    if part.get("type") not in ("RelPosSwin", "RelPosViT"):
        return
    known = set(signature(MODELS.get(part["type"])).parameters) - {"unknown"}
    try:
        refuse_unknown(part["type"], part.keys() - known - {"type", "_scope_"}, known)
    except TypeError as error:
        raise UserError(f"{at}: {error}") from None


def _weight_files(at: str, part: Mapping[str, Any]) -> set[str]:
    """Files that a part of the model starts from.

    Raises:
        UserError: ``pretrained`` beside ``init_cfg``: libraries drop one of them without a word.
    """
    older, init = part.get("pretrained"), part.get("init_cfg") or []
    entries = [init] if isinstance(init, Mapping) else init
    if older and any(entry.get("type") == "Pretrained" for entry in entries):
        raise UserError(
            f"{at} has both pretrained={older!r} and init_cfg; one of them would be dropped. Keep "
            "init_cfg=dict(type='Pretrained', checkpoint=...)."
        )
    named = part.get("checkpoint") if part.get("type") == "Pretrained" else older
    return {named} if isinstance(named, str) else set()
