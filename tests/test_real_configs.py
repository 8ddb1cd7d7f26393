"""Every real config trains, validates, saves, loads and tests as it is, at its full model size.

Only loop lengths, paths, workers and batch size are overridden; the data are small trees in the
layouts of COCO, ADE20K and ImageNet. One detection step takes 6 to 30 s on a CPU, so the published
row of each Swin task runs in CI, and the other rows, DETR and DeiT nightly.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from relpos_mm.data.trees import write_ade_tree, write_coco_tree, write_imagenet_tree

ROOT = Path(__file__).resolve().parent.parent
ITERATIONS = 2


@dataclass(frozen=True)
class Task:
    """How to make one task short; everything else stays as the config says."""

    network: str  # what the names of its configs start with
    write_tree: Callable[..., Path]
    pictures: dict[str, int]
    batch_size: int
    loop: tuple[str, ...]
    metrics: tuple[str, ...]
    annotations: str = ""


TASKS = {
    "cascade": Task(
        "cascade_swin_t",
        write_coco_tree,
        {"num_images": ITERATIONS},
        1,
        ("train_cfg.max_epochs=1",),
        (),  # after two iterations nothing scores above the config's threshold, so no metric
        "annotations/instances_val2017.json",
    ),
    # Batch statistics of the 1 x 1 pooled map need two pictures.
    "upernet": Task(
        "upernet_swin_t",
        write_ade_tree,
        {"num_images": 2},
        2,
        (f"train_cfg.max_iters={ITERATIONS}", f"train_cfg.val_interval={ITERATIONS}"),
        ("miou_pct",),
    ),
    "cls": Task(
        "cls_swin_t",
        write_imagenet_tree,
        {"num_val": 4},
        2,
        # An epoch of two iterations: the tree holds one picture of each of the 1,000 classes.
        ("train_cfg.max_epochs=1", f"train_dataloader.dataset.indices={2 * ITERATIONS}"),
        ("top1_pct", "top5_pct"),
    ),
}
ROWS = ("noenc", "absonly", "absrel", "relonly")
TRANSFORMERS = {
    "detr": replace(
        TASKS["cascade"],
        network="detr_r50",
        # The base names a download for ResNet-50.
        loop=(*TASKS["cascade"].loop, "model.backbone.init_cfg=None"),
        metrics=("box_ap",),
    ),
    "deit": replace(
        TASKS["cls"],
        network="cls_deit_s",
        # Behind 20 epochs of warm-up the cosine would begin after the end.
        loop=(*TASKS["cls"].loop, "param_scheduler.1.begin=0"),
    ),
}
TRANSFORMER_ROWS = {
    "detr": ("abs", "irpe_k", "irpe_qk", "irpe_qkv", "irpe_k_noabs", "irpe_bias"),
    "deit": ("abs", "irpe_k", "irpe_qk", "irpe_qkv", "irpe_k_noabs"),
}
EVERY_TASK = {**TASKS, **TRANSFORMERS}


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def tree(task: str) -> Path:
        if task not in made:
            root = tmp_path_factory.mktemp("trees") / task
            EVERY_TASK[task].write_tree(root, **EVERY_TASK[task].pictures)
            made[task] = root
        return made[task]

    return tree


def overrides(task: str, data_root: Path) -> list[str]:
    spec = EVERY_TASK[task]
    options = [*spec.loop, f"train_dataloader.batch_size={spec.batch_size}"]
    options += ["val_dataloader.dataset.indices=1", "test_dataloader.dataset.indices=1"]
    for split in ("train", "val", "test"):
        options += [
            f"{split}_dataloader.dataset.data_root={data_root}",
            f"{split}_dataloader.num_workers=0",
            f"{split}_dataloader.persistent_workers=False",
        ]
    if spec.annotations:
        file = data_root / spec.annotations
        options += [f"val_evaluator.ann_file={file}", f"test_evaluator.ann_file={file}"]
    return options


def run(tool: str, *arguments: object) -> str:
    command = [sys.executable, str(ROOT / "tools" / f"{tool}.py"), *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


def train_and_test(task: str, row: str, data_root: Path, out: Path, *flags: str) -> dict:
    """Run both tools on one config and return the test's result record."""
    config = ROOT / "configs" / f"{EVERY_TASK[task].network}_{row}.py"
    options = ["--cfg-options", *overrides(task, data_root)]
    run("train", config, "--work-dir", out / "train", *options)
    trained = json.loads((out / "train" / "result.json").read_text())
    assert trained["variant"] == row
    assert trained["validated_at"]["iter"] == ITERATIONS
    (checkpoint,) = (out / "train").glob("*.pth")
    try:
        run("test", config, checkpoint, "--work-dir", out / "test", *flags, *options)
    finally:
        checkpoint.unlink()  # pytest keeps the folders of three sessions, and this is a gigabyte
    tested = json.loads((out / "test" / "result.json").read_text())
    assert set(EVERY_TASK[task].metrics) <= tested["metrics"].keys()
    if not flags:  # the saved weights are the validated ones
        assert tested["metrics"] == pytest.approx(trained["metrics"], abs=1e-3)
    return tested


@pytest.mark.train
@pytest.mark.parametrize("task", TASKS)
def test_published_row(task: str, trees: Callable[[str], Path], tmp_path: Path) -> None:
    train_and_test(task, "relonly", trees(task), tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("row", [row for row in ROWS if row != "relonly"])
@pytest.mark.parametrize("task", TASKS)
def test_other_rows(task: str, row: str, trees: Callable[[str], Path], tmp_path: Path) -> None:
    train_and_test(task, row, trees(task), tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("task", "row"), [(task, row) for task, rows in TRANSFORMER_ROWS.items() for row in rows]
)
def test_every_row_of_detr_and_deit(
    task: str, row: str, trees: Callable[[str], Path], tmp_path: Path
) -> None:
    train_and_test(task, row, trees(task), tmp_path)


@pytest.mark.nightly
def test_multi_scale_with_flips(trees: Callable[[str], Path], tmp_path: Path) -> None:
    tested = train_and_test("upernet", "relonly", trees("upernet"), tmp_path, "--tta")
    assert tested["protocol"]["name"] == "ade20k-val-multi-scale-flip"
    assert tested["protocol"]["flip"] is True
