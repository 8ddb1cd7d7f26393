"""Where the time of a whole training step goes, from reading pictures to logging.

``python -m relpos_mm.analysis.step_profile`` measures again and renews docs/step_profile.json and
the table in docs/step_profile.md.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from statistics import median
from typing import Any

from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner

from relpos_mm.data import require_data
from relpos_mm.engine.checked_runner import CheckedRunner
from relpos_mm.engine.cli import load_config
from relpos_mm.engine.cpu_gemm import AUTO, take_route

from .benchmark_steps import CONFIGS, MINI, build_training
from .measured_page import MeasuredPage
from .synthetic import synthetic_batch
from .tables import markdown_table

FULL_SIZE = ("cascade_swin_t_relonly", "upernet_swin_t_relonly")
# Methods by which a part of a model does its work in training.
_METHODS = ("forward", "loss", "loss_and_predict")
_STEP = "rest of the step"


class Parts:
    """CPU seconds of this process by part of a step."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self._now: dict[str, float] = defaultdict(float)
        self._inside: list[str] = []

    def watch(self, owner: Any, method: str, part: str) -> None:
        """Add the time in a method of an object to a part, less that of other parts inside."""
        original: Callable[..., Any] = getattr(owner, method)

        @wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.process_time()
            self._inside.append(part)
            try:
                return original(*args, **kwargs)
            finally:
                spent = time.process_time() - began
                self._inside.pop()
                self._now[part] += spent
                if self._inside:
                    self._now[self._inside[-1]] -= spent

        setattr(owner, method, timed)

    def watch_step(self, model: BaseModel, wrapper: OptimWrapper) -> None:
        """Watch ``train_step``, the parts of the model, the backward pass and the optimiser."""
        for name, child in model.named_children():
            for method in _METHODS:
                if hasattr(child, method):
                    self.watch(child, method, name)
        self.watch(wrapper, "backward", "backward pass")
        for method in ("step", "zero_grad"):
            self.watch(wrapper, method, "clipping and optimiser")
        self.watch(model, "train_step", _STEP)

    def end_step(self, whole: float | None = None, reading: float | None = None) -> None:
        """Close the entry of a step; ``whole``: its time with a runner's hooks."""
        if whole is not None and reading is not None:
            self._now |= {"hooks and logging": whole - sum(self._now.values()), "reading": reading}
        self.steps.append(dict(self._now))
        self._now.clear()

    def medians(self) -> dict[str, float]:
        """Milliseconds of each part; the first step, which warms up, is left out."""
        names = dict.fromkeys(name for step in self.steps for name in step)
        return {n: 1e3 * median(step.get(n, 0.0) for step in self.steps[1:]) for n in names}


class _First(Hook):
    """Before all other hooks: what ends here is loading."""

    ended = began = 0.0

    def before_train(self, runner: Runner) -> None:
        self.ended = time.process_time()

    def before_train_iter(self, runner: Runner, *_: Any, **__: Any) -> None:
        self.began = time.process_time()


class _Last(Hook):
    """After all other hooks: what is no part of the step since the first hook is theirs."""

    def __init__(self, parts: Parts, first: _First) -> None:
        self.parts, self.first = parts, first

    def before_train(self, runner: Runner) -> None:
        self.parts.watch_step(runner.model, runner.optim_wrapper)

    def after_train_iter(self, runner: Runner, *_: Any, **__: Any) -> None:
        reading = self.first.began - self.first.ended
        self.first.ended = time.process_time()
        whole = self.first.ended - self.first.began
        self.parts.end_step(whole, reading)


def mini(config: str, steps: int, **options: Any) -> tuple[Parts, int]:
    """Train some steps as ``tools/train.py`` does; the process itself reads the pictures.

    Raises:
        relpos_mm.data.MissingData: The config's data are missing.
    """
    options = {"train_cfg.max_iters": steps, "train_dataloader.num_workers": 0, **options}
    cfg = load_config(str(CONFIGS / f"{config}.py"), options)
    require_data(cfg, ("train",))
    for part in ("val", "test"):
        cfg.update({f"{part}_{key}": None for key in ("cfg", "dataloader", "evaluator")})
    with tempfile.TemporaryDirectory() as cfg.work_dir:
        runner = CheckedRunner.from_cfg(cfg)
        parts, first = Parts(), _First()
        runner.register_hook(first, "HIGHEST")
        runner.register_hook(_Last(parts, first), "LOWEST")
        runner.train()
    return parts, cfg.train_dataloader.batch_size


def full_size(config: str, steps: int, **options: Any) -> tuple[Parts, int]:
    """Train some steps on synthetic pictures of the size that the config's data have."""
    cfg = load_config(str(CONFIGS / f"{config}.py"), options)
    take_route(cfg.get("cpu_gemm", AUTO), gpu=False)
    model, wrapper = build_training(cfg)
    batch = synthetic_batch(cfg.default_scope)
    parts = Parts()
    parts.watch_step(model.train(), wrapper)
    for _ in range(steps):
        model.train_step(copy.deepcopy(batch), wrapper)
        parts.end_step()
    return parts, len(batch["inputs"])


def row(config: str, parts: Parts, pictures: int) -> dict[str, Any]:
    """What the record keeps of a config."""
    return {"config": config, "pictures": pictures, "ms": parts.medians()}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The shares of each config's step as a table in Markdown, largest part first."""
    found = {name for one in rows for name in one["ms"]}
    names = sorted(found, key=lambda name: -sum(_share(one, name) for one in rows))
    short = [one["config"].removesuffix("_swin_t_relonly") for one in rows]
    header = [
        "part",
        *(f"{name} ({one['pictures']})" for name, one in zip(short, rows, strict=True)),
    ]
    cells = [["whole step", *(f"{sum(one['ms'].values()):.0f} ms" for one in rows)]]
    for name in names:
        cells.append([name, *(_shown(one, name) for one in rows)])
    return markdown_table(header, cells)


def _share(one: Mapping[str, Any], name: str) -> float:
    return one["ms"].get(name, 0.0) / sum(one["ms"].values())


def _shown(one: Mapping[str, Any], name: str) -> str:
    return f"{100 * _share(one, name):.1f} %" if name in one["ms"] else ""


PAGE = MeasuredPage("step_profile", "steps", table)


def main(steps: int = 12, steps_of_full_size: int = 3) -> None:
    """Measure all configs and renew the record and the page."""
    PAGE.measure(
        row(config, *profile(config, number))
        for profile, configs, number in (
            (full_size, FULL_SIZE, steps_of_full_size),
            (mini, MINI, steps),
        )
        for config in configs
    )


if __name__ == "__main__":
    main()
