"""``tools/infer.py``: predictions for pictures without annotations."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.registry import VISUALIZERS
from torchvision.datasets.folder import IMG_EXTENSIONS

from relpos_mm.environment import require_ops

from . import predictions
from .cli import load_config, require_settings
from .cpu_gemm import take_route
from .errors import UserError
from .options import OptionAction
from .predictor import Predictor, UnreadablePicture
from .saving import write_atomically

# Before the suffix of a label map.
_LABELS = ".labels"


def infer(argv: list[str] | None = None) -> None:
    """Predict as the command line says: a drawing and a json file for every picture.

    Raises:
        UserError: Also when some pictures could not be read; the others are done by then.
    """
    parser = argparse.ArgumentParser(description="Predict on pictures and draw the results.")
    parser.add_argument("config", help="config that the checkpoint was trained with")
    parser.add_argument("checkpoint", help="weights")
    parser.add_argument("pictures", nargs="+", type=Path, help="picture files, or folders of them")
    parser.add_argument("--out-dir", type=Path, default=Path("work_dirs/infer"))
    parser.add_argument("--score-thr", type=float, default=0.3, help="lowest score of an object")
    parser.add_argument("--device", default=get_device(), type=device_name, help="as cpu or cuda:0")
    parser.add_argument("--cfg-options", nargs="+", action=OptionAction, metavar="KEY=VALUE")
    args = parser.parse_args(argv)
    cfg = load_config(args.config, args.cfg_options)
    require_settings(cfg, "model", "test_dataloader")
    jobs = name_outputs(args.pictures, args.out_dir)
    if cfg.get("default_scope") in ("mmdet", "mmseg"):
        require_ops()
    route = take_route(cfg.cpu_gemm, gpu=torch.device(args.device).type != "cpu")
    if route.name is not None:
        print(f"float32 products: {route}")
    predictor = Predictor(cfg, args.checkpoint, args.device)
    try:
        args.out_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"--out-dir: {args.out_dir} cannot be made ({error.strerror}); name another folder"
        ) from None
    bad = _predict_all(cfg, predictor, jobs, args.score_thr)
    if bad:
        raise UserError(f"{len(bad)} of {len(jobs)} pictures not done: {', '.join(map(str, bad))}")


def device_name(name: str) -> str:
    """Return the name of a device if tensors can be made there."""
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0][:60]
        raise argparse.ArgumentTypeError(f"{name!r} cannot be used here ({why})") from None
    return name


def name_outputs(pictures: Iterable[Path], out_dir: Path) -> dict[Path, Path]:
    """Map every picture, those in folders too, to the output path that its files start with.

    It is the picture's path below its folder, without suffix, and with a number where taken: by
    another picture, or by the label map of a segmented one.

    Raises:
        UserError: A folder holds no picture.
    """
    jobs: dict[Path, Path] = {}
    for given in pictures:
        found = [given]
        if given.is_dir():
            found = sorted(p for p in given.rglob("*") if p.suffix.lower() in IMG_EXTENSIONS)
            if not found:
                raise UserError(f"No picture in folder {given} ({' '.join(IMG_EXTENSIONS)})")
        for path in found:
            if path in jobs:
                continue
            below = path.relative_to(given) if given.is_dir() else Path(path.name)
            below, number = below.with_suffix(""), 1
            target = out_dir / below
            while target in jobs.values() or target.suffix == _LABELS:
                number += 1
                target = out_dir / below.with_name(f"{below.name}-{number}")
            jobs[path] = target
    return jobs


def _predict_all(
    cfg: Config, predictor: Predictor, jobs: dict[Path, Path], score_thr: float
) -> list[Path]:
    visualizer = VISUALIZERS.build(
        {"name": "infer", **cfg.visualizer, "vis_backends": None, "save_dir": None}
    )
    visualizer.dataset_meta = predictor.meta
    classes = predictor.meta["classes"]
    bad = []
    for path, target in jobs.items():
        try:
            picture, sample = predictor(path)
        except UnreadablePicture as error:
            print(f"{path}: cannot be read ({error})", file=sys.stderr)
            bad.append(path)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        drawing = target.with_name(f"{target.name}.png")
        if "pred_instances" in sample:
            content = predictions.detections(sample, classes, score_thr)
        elif "pred_sem_seg" in sample:
            labels = target.with_name(f"{target.name}{_LABELS}.png")
            content = predictions.segmentation(sample, classes, labels)
        else:
            content = predictions.classification(sample, classes)
        predictions.draw(visualizer, picture, sample, classes, drawing, score_thr)
        size = {"height_px": picture.shape[0], "width_px": picture.shape[1]}
        record = {"picture": str(path), **size, **content}
        write_atomically(f"{target}.json", (json.dumps(record, indent=1) + "\n").encode())
        print(f"{path} -> {drawing}")
    return bad
