"""Reference numbers that lie in the repository."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

FOLDER = Path(__file__).parents[1] / "data" / "files" / "swin"


def arrays(path: Path) -> dict[str, Tensor]:
    """Every array of an npz file as a tensor."""
    with np.load(path) as file:
        return {key: torch.from_numpy(file[key]) for key in file}


def swin_file(name: str) -> dict[str, Tensor]:
    """See ``tests/data/files/swin/README.md``."""
    return arrays(FOLDER / f"{name}.npz")
