"""Linear read-out: how much of a target a linear map of features tells on pictures held out."""

from __future__ import annotations

import torch
from torch import Tensor

_STRENGTHS = tuple(10.0**e for e in range(-4, 5))  # of the ridge, relative to the mean variance


def held_out_r2(features: Tensor, targets: Tensor, fold: Tensor, pictures: Tensor) -> Tensor:
    """R2 of a ridge regression on the pictures that it was not fitted to.

    Features are standardised by the fitted rows; the strength of the ridge is the one that does
    best on a quarter of the fitted pictures, which are put back for the final fit.

    Args:
        features: ``(N, C)``.
        targets: ``(N, T)``.
        fold: ``(N,)`` bool, True = fitted, False = held out; a picture is in one of them.
        pictures: ``(N,)`` int, which picture a row is of.

    Returns:
        ``(T,)`` share of the held-out variance around the fitted rows' mean that is explained; 1 is
        all, 0 is what the mean tells, below is worse than the mean.

    Raises:
        ValueError: Nothing is held out, or fewer than two pictures are fitted.
    """
    inside = pictures[fold].unique()
    if len(inside) < 2 or bool(fold.all()):
        raise ValueError(
            f"a read-out takes two pictures to fit and one to judge, got {len(inside)} to fit of "
            f"{len(pictures.unique())}"
        )
    chosen = torch.isin(pictures, inside[: max(1, len(inside) // 4)]) & fold
    x, y = features.double(), targets.double()
    tried = [_r2(x, y, fold & ~chosen, chosen, strength) for strength in _STRENGTHS]
    best = torch.stack(tried).mean(1).argmax()
    return _r2(x, y, fold, ~fold, _STRENGTHS[int(best)])


def _r2(x: Tensor, y: Tensor, fitted: Tensor, judged: Tensor, strength: float) -> Tensor:
    centre, middle = x[fitted].mean(0), y[fitted].mean(0)
    spread = x[fitted].std(0)
    # A dead channel stays out instead of being blown up to noise.
    scale = torch.where(spread > 1e-6 * x[fitted].abs().amax(0), 1 / spread, 0.0)
    known, asked = (x[fitted] - centre) * scale, (x[judged] - centre) * scale
    ridge = strength * len(known) * torch.eye(x.shape[1], dtype=x.dtype)
    weights = torch.linalg.solve(known.t() @ known + ridge, known.t() @ (y[fitted] - middle))
    left = (asked @ weights + middle - y[judged]).square().sum(0)
    return 1 - left / (y[judged] - middle).square().sum(0)
