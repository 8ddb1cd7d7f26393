"""The configs pass every check and hold what docs/recipes.md says."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.optim import OptimWrapper, build_optim_wrapper
from mmengine.registry import PARAM_SCHEDULERS, DefaultScope
from PIL import Image

import relpos_mm  # noqa: F401  registers what the configs name
from relpos_mm.checks import check_tree
from relpos_mm.checks.model import build_on_meta
from relpos_mm.checks.tree import config_files

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "configs"
ROWS = ("noenc", "absonly", "absrel", "relonly")


def load(name: str) -> Config:
    return Config.fromfile(CONFIGS / f"{name}.py")


# ------------------------------------------------------------------------------ all of them at once


@pytest.mark.train  # builds every model: a minute
def test_every_config_passes_every_check() -> None:
    lines: list[str] = []
    assert [str(problem) for problem in check_tree(CONFIGS, progress=lines.append)] == []
    leaves = [CONFIGS / f"{task}_swin_t_{row}.py" for task in TASKS for row in ROWS]
    assert {path for path in leaves if f"{path}: ok" in lines} == set(leaves)


@pytest.mark.parametrize("path", config_files(CONFIGS)[0], ids=lambda path: path.stem)
def test_a_leaf_is_read_at_a_glance(path: Path) -> None:
    assert 4 <= len(path.read_text().splitlines()) <= 12


# ------------------------------------------------------------------------------------- the recipes

TASKS = {"cascade": "detection", "upernet": "segmentation", "cls": "classification"}
TABLES, ABSOLUTE = 23_322, 301_056  # Swin-T: 12 bias tables; one 56 x 56 x 96 embedding
EXTRA = {"noenc": 0, "absonly": ABSOLUTE, "absrel": ABSOLUTE + TABLES, "relonly": TABLES}
PUBLISHED = {"cascade": 85_629_804, "upernet": 59_941_862, "cls": 28_288_354}


# The other rows: every config is checked against `params_without_position` above.
@pytest.mark.parametrize(
    ("task", "row"),
    [("cascade", "relonly"), ("upernet", "relonly"), ("cls", "relonly"), ("cls", "absrel")],
)
def test_parameter_count(task: str, row: str) -> None:
    model = build_on_meta(load(f"{task}_swin_t_{row}"))
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == PUBLISHED[task] - TABLES + EXTRA[row]


# batch, learning rate, weight decay, gradient norm, drop path, small maps
NUMBERS = {
    "cascade": (16, 1e-4, 0.05, None, 0.2, "pad"),
    "upernet": (16, 6e-5, 0.01, None, 0.3, "pad"),
    "cls": (1024, 1e-3, 0.05, 5.0, 0.2, "shrink"),
}


@pytest.mark.parametrize("task", TASKS)
def test_common_facts(task: str) -> None:
    config = load(f"{task}_swin_t_relonly")
    optimizer, backbone = config.optim_wrapper.optimizer, config.model.backbone
    clip = config.optim_wrapper.get("clip_grad")
    assert NUMBERS[task] == (
        config.auto_scale_lr.base_batch_size,
        optimizer.lr,
        optimizer.weight_decay,
        clip.max_norm if clip else None,
        backbone.drop_path_rate,
        backbone.small_map,
    )
    assert optimizer.type == "AdamW"
    assert tuple(optimizer.betas) == (0.9, 0.999)
    assert config.optim_wrapper.get("type", "OptimWrapper") == "OptimWrapper"  # no mixed precision
    assert config.auto_scale_lr.base_batch_size == 8 * config.train_dataloader.batch_size
    assert config.auto_scale_lr.enable is False
    assert config.task == TASKS[task]
    hooks = [hook.type for hook in config.custom_hooks]
    assert {"StartReportHook", "NonFiniteLossHook", "ResultHook"} <= set(hooks)
    assert config.custom_imports.imports == ["relpos_mm"]


def test_cascade_recipe() -> None:
    config = load("cascade_swin_t_relonly")
    assert config.train_cfg.max_epochs == 36
    warm_up, steps = config.param_scheduler
    assert (warm_up.start_factor, warm_up.end, steps.milestones) == (0.001, 500, [27, 33])
    for head in config.model.roi_head.bbox_head:
        assert (head.num_shared_convs, head.num_shared_fcs) == (4, 1)
        assert head.norm_cfg.type == "SyncBN"
        assert head.reg_decoded_bbox
        assert not head.reg_class_agnostic
        assert (head.loss_bbox.type, head.loss_bbox.loss_weight) == ("GIoULoss", 10.0)
    whole, crop = config.train_dataloader.dataset.pipeline[3].transforms
    assert [scale[0] for scale in whole[0].scales] == list(range(480, 801, 32))
    assert [step.type for step in crop] == [
        "RandomChoiceResize",
        "RandomCrop",
        "RandomChoiceResize",
    ]
    assert [scale[0] for scale in crop[0].scales] == [400, 500, 600]
    assert (crop[1].crop_type, crop[1].crop_size) == ("absolute_range", (384, 600))
    assert config.protocol.scales == [(1333, 800)]


def test_upernet_recipe() -> None:
    config = load("upernet_swin_t_relonly")
    assert config.train_cfg.max_iters == 160_000
    assert config.model.decode_head.num_classes == config.model.auxiliary_head.num_classes == 150
    assert config.model.auxiliary_head.loss_decode.loss_weight == 0.4
    assert config.model.decode_head.norm_cfg.type == "SyncBN"
    assert config.model.test_cfg.mode == "whole"


def test_cls_recipe() -> None:
    config = load("cls_swin_t_relonly")
    assert config.train_dataloader.drop_last
    assert config.train_cfg.max_epochs == 300
    assert [(a.type, a.alpha) for a in config.model.train_cfg.augments] == [
        ("Mixup", 0.8),
        ("CutMix", 1.0),
    ]
    assert config.model.head.loss.label_smooth_val == 0.1
    train = {step.type: step for step in config.train_dataloader.dataset.pipeline}
    assert train["RandomResizedCrop"].interpolation == "bicubic"
    assert train["RandomErasing"].erase_prob == 0.25
    test = {step.type: step for step in config.test_dataloader.dataset.pipeline}
    assert (test["ResizeEdge"].scale, test["CenterCrop"].crop_size) == (256, 224)
    assert test["ResizeEdge"].interpolation == "bicubic"


def groups(name: str) -> dict[str, float]:
    """Return the weight decay of every parameter of a config."""
    config = load(name)
    model = build_on_meta(config)
    with DefaultScope.overwrite_default_scope(config.default_scope):
        optimizer = build_optim_wrapper(model, config.optim_wrapper).optimizer
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {
        names[id(parameter)]: group["weight_decay"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }


@pytest.mark.parametrize(("row", "undecayed"), [("relonly", 120), ("absrel", 121), ("noenc", 108)])
def test_classifier_decays_weights_only(row: str, undecayed: int) -> None:
    decay = list(groups(f"cls_swin_t_{row}").values())
    assert (decay.count(0.05), decay.count(0.0)) == (53, undecayed)


@pytest.mark.parametrize("task", ["cascade", "upernet"])
def test_dense_tasks_spare_norms_and_position_only(task: str) -> None:
    decay = groups(f"{task}_swin_t_absrel")
    spared = {name for name, value in decay.items() if value == 0.0}
    assert spared == {name for name in decay if "norm" in name or ".position." in f".{name}"} | {
        name for name in decay if name.endswith("absolute_pos_embed")
    }
    backbone_biases = [n for n in decay if n.startswith("backbone") and n.endswith(".bias")]
    # 48 in the blocks and the patch convolution; the release decays them, unlike the classifier.
    assert sum(decay[name] > 0 for name in backbone_biases) == 49
    assert all(value > 0 for name, value in decay.items() if ".bn." in name)


# ----------------------------------------------------------------------------------- learning rates


def rates(name: str, iterations: int, epoch_length: int) -> list[float]:
    """Return the learning rate of each iteration, as the runner would step the schedulers."""
    config = load(name)
    lr = config.optim_wrapper.optimizer.lr
    wrapper = OptimWrapper(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr))
    schedulers = []
    for cfg in config.param_scheduler:
        cfg = cfg.copy()
        extra = {"epoch_length": epoch_length} if cfg.pop("convert_to_iter_based", False) else {}
        build = PARAM_SCHEDULERS.get(cfg.pop("type"))
        if extra:
            schedulers.append(build.build_iter_from_epoch(wrapper, **cfg, **extra))
        else:
            schedulers.append(build(wrapper, **cfg))
    trace = []
    for iteration in range(iterations):
        trace.append(wrapper.optimizer.param_groups[0]["lr"])
        for scheduler in schedulers:
            if not scheduler.by_epoch or (iteration + 1) % epoch_length == 0:
                scheduler.step()
    return trace


def test_upernet_schedule_is_the_released_one() -> None:
    trace = rates("upernet_swin_t_relonly", 4000, 1)
    for t in (0, 1, 749, 1499, 1500, 3999):
        regular = 6e-5 * (1 - t / 160_000)
        warm = 1.0 if t >= 1500 else 1 - (1 - t / 1500) * (1 - 1e-6)
        # mmengine ends the warm-up one iteration earlier: 1 / 1499 instead of 1 / 1500 per step.
        assert trace[t] == pytest.approx(regular * warm, rel=1e-3, abs=1e-10)


def test_cascade_schedule_is_the_released_one() -> None:
    trace = rates("cascade_swin_t_relonly", 36 * 100, 100)
    for t, factor in ((0, 0.001), (499, 1.0), (500, 1.0), (2699, 1.0), (2700, 0.1), (3300, 0.01)):
        assert trace[t] == pytest.approx(1e-4 * factor)


def test_classifier_schedule_is_a_cosine_per_iteration_behind_the_warm_up() -> None:
    length = 10
    trace = rates("cls_swin_t_relonly", 300 * length, length)
    assert trace[0] == pytest.approx(1e-6)
    for epoch in (20.0, 20.5, 90.0, 160.3, 299.0):
        cosine = (1 + math.cos(math.pi * (epoch - 20) / 280)) / 2
        assert trace[round(epoch * length)] == pytest.approx(
            1e-5 + (1e-3 - 1e-5) * cosine, rel=5e-3
        )


# ------------------------------------------------------------------------------- ADE20K protocols


@pytest.fixture
def labelled_picture(tmp_path: Path) -> dict[str, object]:
    """Return one 500 x 300 picture with a label that holds every special value."""
    label = np.full((300, 500), 7, np.uint8)
    label[0, :5] = (0, 1, 2, 150, 255)
    Image.fromarray(np.zeros((300, 500, 3), np.uint8)).save(tmp_path / "picture.png")
    Image.fromarray(label).save(tmp_path / "label.png")
    return dict(
        img_path=str(tmp_path / "picture.png"),
        seg_map_path=str(tmp_path / "label.png"),
        reduce_zero_label=True,
        label_map=None,
        seg_fields=[],
    )


def build_pipeline(config: Config, pipeline: list) -> Compose:
    with DefaultScope.overwrite_default_scope(config.default_scope):
        import mmseg.datasets  # noqa: F401  registers the transforms

        return Compose(pipeline)


def test_multi_scale_test_scales_the_frame_and_flips(labelled_picture: dict) -> None:
    config = load("upernet_swin_t_relonly")
    frames = [(1024, 256), (1536, 384), (2048, 512), (2560, 640), (3072, 768), (3584, 896)]
    assert config.tta_protocol.scales == frames
    variants = build_pipeline(config, config.tta_pipeline)(labelled_picture)
    samples = variants["data_samples"]
    # 500 x 300 inside (2048 r, 512 r): the short side decides, as in the released multi-scale test.
    expected = [(frame[1], round(frame[1] * 500 / 300)) for frame in frames for _ in range(2)]
    assert [sample.img_shape[:2] for sample in samples] == expected
    assert [bool(sample.metainfo.get("flip")) for sample in samples] == [False, True] * 6
    label = samples[0].gt_sem_seg.data
    assert all(torch.equal(sample.gt_sem_seg.data, label) for sample in samples)
    assert tuple(label.shape) == (1, 300, 500)


@pytest.mark.parametrize("split", ["train", "val", "test", "tta"])
def test_label_zero_is_reduced_once(labelled_picture: dict, split: str) -> None:
    config = load("upernet_swin_t_relonly")
    if split == "tta":
        steps = config.tta_pipeline[1].transforms[2]
    else:
        pipeline = config[f"{split}_dataloader"].dataset.pipeline
        steps = [step for step in pipeline if step.type == "LoadAnnotations"]
    label = build_pipeline(config, steps)(labelled_picture)["gt_seg_map"]
    assert label[0, :5].tolist() == [255, 0, 1, 149, 255]
