"""Reading reference vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

FILES = Path(__file__).parents[1] / "data" / "files"


def read(path: Path) -> dict[str, Tensor]:
    """Arrays of a file; texts are left out, see :func:`facts`."""
    with np.load(path) as arrays:
        return {
            key: torch.from_numpy(arrays[key]) for key in arrays if arrays[key].dtype.kind != "U"
        }


def facts(path: Path) -> dict[str, object]:
    """The configuration that a file was made with: its ``meta_*`` entries."""
    with np.load(path) as arrays:
        return {
            key.removeprefix("meta_"): arrays[key].item()
            for key in arrays
            if key.startswith("meta_") and arrays[key].ndim == 0
        }


def error(ours: Tensor, expected: Tensor) -> float:
    """Largest difference relative to the largest expected number."""
    assert ours.shape == expected.shape
    return ((ours.detach() - expected).abs().max() / expected.abs().max()).item()
