"""``tools/train.py``: mmdet's training flags for all three libraries."""

from __future__ import annotations

import torch
from mmengine.config import Config
from mmengine.logging import print_log

from .checked_runner import CheckedRunner
from .checkpoints import latest_resumable, require_training_state
from .cli import apply_run_flags, load_config, preflight, require_settings, run_parser
from .distributed import prepare_processes
from .errors import UserError
from .evidence import EvidenceHook
from .resuming import ResumedRateHook, continue_as_before


def train(argv: list[str] | None = None) -> None:
    """Train as the command line says.

    Raises:
        UserError: Anything the user can repair; see :func:`relpos_mm.engine.cli.preflight`.
    """
    parser = run_parser("Train a detector, a segmenter or a classifier.")
    parser.add_argument(
        "--amp", action="store_true", help="mixed precision: bfloat16 where the device has it"
    )
    parser.add_argument(
        "--auto-scale-lr", action="store_true", help="scale the learning rate to the batch"
    )
    parser.add_argument(
        "--resume",
        nargs="?",
        const="auto",
        metavar="CHECKPOINT",
        help="go on from this file; without a file from the newest one in the work directory",
    )
    parser.add_argument(
        "--resume-changed",
        action="store_true",
        help="resume although batch, processes or learning rate of the config are other ones now",
    )
    args = parser.parse_args(argv)
    cfg = load_config(args.config, args.cfg_options)
    require_settings(cfg, "model", "train_dataloader", "train_cfg", "optim_wrapper")
    apply_run_flags(cfg, args)
    if args.amp:
        use_amp(cfg)
    if args.auto_scale_lr:
        scale = cfg.get("auto_scale_lr") or {}
        if "base_batch_size" not in scale:
            raise UserError(
                f"--auto-scale-lr: {args.config} has no auto_scale_lr.base_batch_size, so there is "
                "no batch to scale from. Add auto_scale_lr = dict(base_batch_size=...)."
            )
        cfg.auto_scale_lr.enable = True
    factor = resume(cfg, args.resume, args.resume_changed) if args.resume else None
    preflight(cfg, "train", "val")
    prepare_processes(cfg)
    runner = CheckedRunner.from_cfg(cfg)
    if factor is not None:
        runner.register_hook(ResumedRateHook(factor))
    if args.evidence:
        runner.register_hook(EvidenceHook())
    runner.train()


def use_amp(cfg: Config) -> None:
    """Switch to mixed precision; ``optim_wrapper.dtype`` chooses the type if the config has it.

    Raises:
        UserError: float16 is asked for on a machine without a GPU, or an unknown type.
    """
    wrapper = cfg.optim_wrapper
    has_gpu = torch.cuda.is_available()
    has_bfloat16 = not has_gpu or torch.cuda.is_bf16_supported(including_emulation=False)
    dtype = wrapper.pop("dtype", None) or ("bfloat16" if has_bfloat16 else "float16")
    scale = wrapper.pop("loss_scale", "dynamic")
    if dtype == "bfloat16":
        wrapper.type = "Bfloat16OptimWrapper"
    elif dtype == "float16" and has_gpu:
        wrapper.update(type="AmpOptimWrapper", dtype=dtype, loss_scale=scale)
    else:
        raise UserError(
            f"--amp: optim_wrapper.dtype={dtype!r} cannot be used here; take 'bfloat16', or "
            "'float16' on a GPU."
        )


def resume(cfg: Config, source: str, changed: bool = False) -> float | None:
    """Point the config at the file to go on from: ``auto`` or a path.

    A first start with ``auto`` keeps the config's ``load_from``, so one command serves for the
    first start and for every restart.

    Returns:
        The factor of :func:`relpos_mm.engine.resuming.continue_as_before`.
    """
    if source == "auto":
        newest = latest_resumable(cfg.work_dir)
        if newest is None:
            print_log(f"--resume: no checkpoint in {cfg.work_dir} yet, training starts anew")
            return None
        source = str(newest)
    content = require_training_state(source)
    factor = continue_as_before(cfg, source, content["meta"], changed)
    cfg.resume, cfg.load_from = True, source
    return factor
