"""A classifier of a few thousand parameters and a runner around it, for tests of the hooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import torch
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, METRICS, MODELS
from mmengine.runner import Runner
from torch import Tensor, nn
from torch.utils.data import Dataset

from relpos_mm.models import RelPosSwin

SWIN = {
    "embed_dims": 8,
    "depths": (1, 1),
    "num_heads": (1, 2),
    "window_size": (2, 2),
    "pretrain_img_size": 16,
    "drop_path_rate": 0.0,
    "out_indices": (1,),
}
RELONLY = [{"type": "RelativeBias"}]
ABSREL = [{"type": "AbsoluteTable"}, {"type": "RelativeBias"}]


@DATASETS.register_module(force=True)
class ToyData(Dataset):
    """Seeded noise with two classes."""

    metainfo: ClassVar = {"classes": ("left", "right")}

    def __init__(self, size: int = 8) -> None:
        generator = torch.Generator().manual_seed(0)
        self.pictures = torch.randn(size, 3, 16, 16, generator=generator)

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"inputs": self.pictures[index], "label": torch.tensor(index % 2)}


@MODELS.register_module(force=True)
class ToyModel(BaseModel):
    """``poison_at`` makes one of two losses NaN at that iteration, counted from 0."""

    def __init__(
        self,
        position: list[dict[str, Any]] | None = None,
        poison_at: int | None = None,
        unused: bool = False,
        norm: str = "BatchNorm2d",
        data_preprocessor: Any = None,
        **backbone: Any,
    ) -> None:
        super().__init__(data_preprocessor=data_preprocessor)
        self.backbone = RelPosSwin(
            **{**SWIN, **backbone}, position=RELONLY if position is None else position
        )
        self.norm = getattr(nn, norm)(16)
        self.head = nn.Linear(16, 2)
        if unused:
            self.spare = nn.Linear(2, 2)
        self.poison_at = poison_at
        self.calls = 0

    def forward(self, inputs: Tensor, label: Tensor, mode: str = "tensor") -> Any:
        logits = self.head(self.norm(self.backbone(inputs)[0]).mean((2, 3)))
        if mode != "loss":
            return list(zip(logits, label, strict=True))
        loss = nn.functional.cross_entropy(logits, label)
        extra = logits.square().mean() * (float("nan") if self.calls == self.poison_at else 0.1)
        self.calls += 1
        return {"loss_cls": loss, "loss_size": extra}


@METRICS.register_module(force=True)
class ToyMetric(BaseMetric):
    """The names that the three libraries' metrics use, with values to be turned into null."""

    default_prefix = None

    def process(self, data_batch: Any, data_samples: Any) -> None:
        self.results += [bool(logits.argmax() == label) for logits, label in data_samples]

    def compute_metrics(self, results: list[bool]) -> dict[str, float]:
        top1 = 100 * sum(results) / len(results)
        return {"accuracy/top1": top1, "coco/bbox_mAP_s": -1.0, "coco/segm_mAP": float("nan")}


def toy_runner(work_dir: Path, runner_type: type[Runner] = Runner, **changes: Any) -> Runner:
    """Return a runner of two epochs of four iterations; ``changes`` replace its arguments."""
    loader = {
        "batch_size": 2,
        "num_workers": 0,
        "sampler": {"type": "DefaultSampler", "shuffle": True},
        "collate_fn": {"type": "default_collate"},
        "dataset": {"type": "ToyData"},
    }
    arguments: dict[str, Any] = {
        "model": {"type": "ToyModel"},
        "train_dataloader": loader,
        "val_dataloader": loader,
        "test_dataloader": loader,
        "val_evaluator": {"type": "ToyMetric"},
        "test_evaluator": {"type": "ToyMetric"},
        "train_cfg": {"by_epoch": True, "max_epochs": 2},
        "val_cfg": {},
        "test_cfg": {},
        "optim_wrapper": {
            "constructor": "PositionOptimConstructor",
            "optimizer": {"type": "AdamW", "lr": 0.001, "weight_decay": 0.05},
        },
        "default_hooks": {"checkpoint": {"type": "SafeCheckpointHook", "interval": 1}},
        "custom_hooks": [{"type": "StartReportHook"}],
        "randomness": {"seed": 3},
        "default_scope": "mmengine",
        **changes,
    }
    # Loggers are kept by experiment name, which must therefore not repeat between tests.
    name = str(work_dir).replace("/", "_")
    return runner_type(work_dir=str(work_dir), experiment_name=name, **arguments)


def log_of(runner: Runner) -> str:
    """Return the text log of a runner."""
    return Path(runner._log_dir, f"{runner.timestamp}.log").read_text()
