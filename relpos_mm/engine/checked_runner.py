"""mmengine's runner with two checks: class counts of the heads, and every sample it loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mmengine.runner import Runner
from torch.utils.data import DataLoader

from relpos_mm.checks.model import check_classes
from relpos_mm.data.check.sample import check_samples

from .errors import UserError
from .facts import bare_model


class CheckedRunner(Runner):
    """Refuse heads whose class counts differ, and name the file of every sample that fails.

    Raises:
        UserError: A head has another number of classes than the data set.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        path = Path(self.cfg.filename or "this config")
        wrong = list(check_classes(path, self.cfg, bare_model(self.model)))
        if wrong:
            raise UserError("\n".join(map(str, wrong)))

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
