"""``tools/test.py``: mmdet's test flags for all three libraries."""

from __future__ import annotations

from pathlib import Path

from mmengine.config import Config, ConfigDict
from mmengine.evaluator import DumpResults

from .checked_runner import CheckedRunner
from .cli import apply_run_flags, load_config, preflight, require_settings, run_parser
from .distributed import prepare_processes
from .errors import UserError
from .evidence import EvidenceHook
from .unlabelled import write_results_only

# The switch and the folder of each library's own drawing hook. A dotted folder is a config path.
_DRAWING = {
    "DetVisualizationHook": ("draw", "default_hooks.visualization.test_out_dir"),
    "SegVisualizationHook": ("draw", "visualizer.save_dir"),
    "VisualizationHook": ("enable", "default_hooks.visualization.out_dir"),
}


def evaluate(argv: list[str] | None = None) -> None:
    """Evaluate a checkpoint as the command line says.

    Raises:
        UserError: Anything the user can repair; see :func:`relpos_mm.engine.cli.preflight`.
    """
    parser = run_parser("Evaluate a checkpoint on the test data of a config.")
    parser.add_argument("checkpoint", help="weights to evaluate")
    parser.add_argument("--out", help="write all predictions to this .pkl file")
    parser.add_argument("--show", action="store_true", help="show the predictions in a window")
    parser.add_argument("--show-dir", help="folder for drawn predictions")
    parser.add_argument("--wait-time", type=float, default=2, help="seconds per shown picture")
    parser.add_argument("--tta", action="store_true", help="test-time augmentation of the config")
    args = parser.parse_args(argv)
    if args.out and Path(args.out).suffix not in (".pkl", ".pickle"):
        raise UserError(f"--out: {args.out} must end in .pkl or .pickle")
    cfg = load_config(args.config, args.cfg_options)
    require_settings(cfg, "model", "test_dataloader", "test_cfg")
    apply_run_flags(cfg, args)
    cfg.load_from, cfg.resume = args.checkpoint, False
    if args.show or args.show_dir:
        draw_predictions(cfg, args.show, args.show_dir, args.wait_time)
    write_results_only(cfg)
    preflight(cfg, "test")
    if args.tta:
        use_tta(cfg)
    prepare_processes(cfg)
    runner = CheckedRunner.from_cfg(cfg)
    if args.out:
        runner.test_evaluator.metrics.append(_dumper(cfg, args.out))
    if args.evidence:
        runner.register_hook(EvidenceHook())
    runner.test()


def use_tta(cfg: Config) -> None:
    """Wrap the model and take the pipeline of the config's test-time augmentation.

    Raises:
        UserError: The config defines none.
    """
    missing = [key for key in ("tta_model", "tta_pipeline") if key not in cfg]
    if missing:
        raise UserError(
            f"--tta: {cfg.filename} has no {' and no '.join(missing)}; "
            "test without --tta, or add it"
        )
    dataset = cfg.test_dataloader.dataset
    while "dataset" in dataset:
        dataset = dataset.dataset
    dataset.pipeline = cfg.tta_pipeline
    cfg.model = ConfigDict(**cfg.tta_model, module=cfg.model)


def draw_predictions(cfg: Config, show: bool, folder: str | None, wait_s: float) -> None:
    """Switch the library's own drawing of test predictions on.

    Raises:
        UserError: The config has no drawing hook that is known here.
    """
    hook = cfg.get("default_hooks", {}).get("visualization") or {}
    kind = str(hook.get("type")).rpartition(".")[2]
    if kind not in _DRAWING:
        raise UserError(
            f"--show, --show-dir: default_hooks.visualization of {cfg.filename} is {kind}; "
            f"drawing needs one of {', '.join(_DRAWING)}"
        )
    switch, folder_key = _DRAWING[kind]
    hook.update({switch: True, "show": show, "wait_time": wait_s, "interval": 1})
    if folder:
        cfg.merge_from_dict({folder_key: folder})


def _dumper(cfg: Config, path: str) -> DumpResults:
    device = "cpu" if cfg.launcher == "none" else "gpu"
    if cfg.default_scope == "mmdet":  # stores masks run-length encoded
        from mmdet.evaluation import DumpDetResults

        return DumpDetResults(out_file_path=path, collect_device=device)
    return DumpResults(out_file_path=path, collect_device=device)
