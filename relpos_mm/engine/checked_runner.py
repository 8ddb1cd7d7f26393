"""mmengine's runner with what every run of this project has, whatever its config lists."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from mmengine.device import get_device
from mmengine.runner import BaseLoop, Runner
from torch import nn
from torch.utils.data import DataLoader

from relpos_mm.checks.model import check_classes
from relpos_mm.data.check.sample import check_samples

from .compiling import KEY, compile_backbone
from .cpu_gemm import AUTO, take_route
from .curve import CurveHook
from .errors import UserError, building
from .facts import bare_model
from .loading import LoadingShareHook
from .repeat import IterationSeedHook, numbered
from .resuming import OwedValidationHook


class CheckedRunner(Runner):
    """Refuse heads whose class counts differ, name the file of every sample that fails, and draw
    random numbers by the place in the training, so that a resumed run repeats an unbroken one.

    Attributes:
        cpu_gemm: What multiplies float32 matrices, see :mod:`relpos_mm.engine.cpu_gemm`.

    Raises:
        UserError: The model, its optimiser, a loader, a loop, a schedule or an evaluator cannot be
            built, or a head has another number of classes than the data set.
    """

    _train_dataloader: DataLoader | dict[str, Any] | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        path = Path(self.cfg.filename or "this config")
        wrong = list(check_classes(path, self.cfg, bare_model(self.model)))
        if wrong:
            raise UserError("\n".join(map(str, wrong)))

    def setup_env(self, env_cfg: dict[str, Any]) -> None:
        super().setup_env(env_cfg)
        # The processes have met and nothing has been computed yet.
        self.cpu_gemm = take_route(self.cfg.get("cpu_gemm", AUTO), gpu=get_device() != "cpu")

    def build_model(self, model: nn.Module | dict[str, Any]) -> nn.Module:
        with self._building("the model"):
            built = super().build_model(model)
        compile_backbone(built, self.cfg.get(KEY, False))
        return built

    def build_optim_wrapper(self, optim_wrapper: Any) -> Any:
        with self._building("optim_wrapper"):
            return super().build_optim_wrapper(optim_wrapper)

    def build_param_scheduler(self, scheduler: Any) -> Any:
        with self._building("param_scheduler"):
            return super().build_param_scheduler(scheduler)

    def build_evaluator(self, evaluator: Any) -> Any:
        with self._building("an evaluator"):
            return super().build_evaluator(evaluator)

    def build_visualizer(self, visualizer: Any = None) -> Any:
        with self._building("the visualizer"):
            return super().build_visualizer(visualizer)

    def register_hooks(self, *args: Any, **kwargs: Any) -> None:
        with self._building("a hook"):
            super().register_hooks(*args, **kwargs)
        for hook in (IterationSeedHook(), LoadingShareHook(), CurveHook(), OwedValidationHook()):
            self.register_hook(hook)

    def build_train_loop(self, loop: BaseLoop | dict[str, Any]) -> BaseLoop:
        if isinstance(self._train_dataloader, dict):
            self._train_dataloader = numbered(self._train_dataloader, self.seed)
        with self._building("train_dataloader or train_cfg"):
            return super().build_train_loop(loop)

    def build_val_loop(self, loop: BaseLoop | dict[str, Any]) -> BaseLoop:
        with self._building("val_dataloader or val_cfg"):
            return super().build_val_loop(loop)

    def build_test_loop(self, loop: BaseLoop | dict[str, Any]) -> BaseLoop:
        with self._building("test_dataloader or test_cfg"):
            return super().build_test_loop(loop)

    def _building(self, what: str) -> AbstractContextManager[None]:
        return building(what, self.cfg.filename)

    @staticmethod
    def build_dataloader(
        dataloader: DataLoader | dict[str, Any],
        seed: int | None = None,
        diff_rank_seed: bool = False,
    ) -> DataLoader:
        """Build a loader whose data sets check each sample.

        This is the one place before the loader's processes start, which copy the data set.
        """
        loader = Runner.build_dataloader(dataloader, seed, diff_rank_seed)
        check_samples(loader.dataset)
        return loader
