"""A tiny embedded data set, made once, and the project's configs."""

from collections.abc import Callable
from pathlib import Path

import pytest
from mmengine.config import Config

import relpos_mm  # noqa: F401  registers what the configs name
from relpos_mm.data.bdpq import Knobs, make_mini

TINY = Knobs(cls_train=16, cls_val=8, train_scenes=6, val_scenes=3)


@pytest.fixture(scope="session")
def tiny_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny bdpq; shared, so not to be changed."""
    return make_mini(tmp_path_factory.mktemp("data") / "bdpq", knobs=TINY, workers=1).parent


@pytest.fixture
def load_config(repo_root: Path) -> Callable[[str], Config]:
    """Loads a config by its path under configs/."""
    return lambda name: Config.fromfile(repo_root / "configs" / name)
