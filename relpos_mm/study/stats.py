"""What paired differences at equal seed can say, and what they cannot.

The verdict's rule stands here, before any data: a difference *helps* or *hurts* when its exact
two-sided permutation p value, corrected by Holm over the comparisons of the same question and
metric, is at most :data:`ALPHA` and the 95 % interval of the mean leaves out zero; everything else
is *undecided*. One seed is always undecided, and an exact two-sided test of ``n`` pairs cannot give
less than ``2 / 2**n``: six pairs are the fewest that can decide one comparison at 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

ALPHA = 0.05
POWER = 0.8
HELPS, HURTS, UNDECIDED = "helps", "hurts", "undecided"
# scipy enumerates all sign patterns up to here (16 pairs) and samples beyond.
_PATTERNS = 2**16


@dataclass(frozen=True)
class Difference:
    """A paired difference of one metric between two variants.

    Attributes:
        seeds: Seeds that both have.
        values: One difference per seed.
        mean: Their mean; None without seeds.
        interval: 95 % t interval of the mean; None below two seeds.
        p: Exact two-sided sign-flip p value; None without seeds.
        p_holm: The same after Holm's correction; None before it.
        detectable: Smallest true difference that a test at 5 % of this many pairs of this spread
            finds with a probability of 80 %; None where no difference of any size would do.
    """

    seeds: tuple[int, ...]
    values: tuple[float, ...]
    mean: float | None
    interval: tuple[float, float] | None
    p: float | None
    p_holm: float | None = None
    detectable: float | None = None

    @property
    def n(self) -> int:
        """Number of pairs."""
        return len(self.values)

    @property
    def spread(self) -> float | None:
        """Standard deviation of the differences over seeds."""
        return float(np.std(self.values, ddof=1)) if self.n > 1 else None

    @property
    def verdict(self) -> str:
        """``helps``, ``hurts`` or ``undecided``, by the rule of this module."""
        if self.mean is None or self.interval is None or self.p_holm is None:
            return UNDECIDED
        low, high = self.interval
        if self.p_holm > ALPHA or low <= 0 <= high:
            return UNDECIDED
        return HELPS if self.mean > 0 else HURTS


def paired(
    one: Mapping[int, float | None], other: Mapping[int, float | None], family: int = 1
) -> Difference:
    """Compare two variants seed by seed; a seed that lacks one of the two numbers is left out.

    Args:
        one: Metric by seed.
        other: Metric of the control by seed.
        family: Comparisons that Holm's correction will run over, for what can be detected.
    """
    seeds = tuple(sorted(s for s in one.keys() & other.keys() if _both(one[s], other[s])))
    values = np.array([float(one[s]) - float(other[s]) for s in seeds])  # type: ignore[arg-type]
    if not seeds:
        return Difference((), (), None, None, None)
    interval = None
    if len(seeds) > 1:
        found = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
        spread = float(values.std(ddof=1))
        interval = (float(found.low), float(found.high)) if spread else (float(values[0]),) * 2
    return Difference(
        seeds,
        tuple(map(float, values)),
        float(values.mean()),
        interval,
        _exact_p(values),
        detectable=_detectable(values, family),
    )


def _exact_p(values: np.ndarray) -> float:
    """Return the share of sign patterns whose mean is as far from zero, on either side."""
    if len(values) == 1:
        return 1.0  # both patterns are equally far; scipy wants two observations
    exact = stats.permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=_PATTERNS, rng=0
    )
    return float(exact.pvalue)


def _both(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and math.isfinite(one) and math.isfinite(other)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p values, in the order given."""
    order = np.argsort(p_values)
    steps = np.asarray(p_values, dtype=float)[order] * np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(p) for p in adjusted]


def smallest_p(n: int, family: int = 1) -> float:
    """Return the smallest adjusted p value that ``n`` pairs can give to one of ``family``."""
    return min(1.0, family * 2.0 / 2**n) if n else 1.0


def fewest_seeds(family: int = 1) -> int:
    """Return the fewest pairs with which an exact two-sided test can decide at 5 %."""
    return next(n for n in range(1, 64) if smallest_p(n, family) <= ALPHA)


def _detectable(values: np.ndarray, family: int) -> float | None:
    n = len(values)
    if n < fewest_seeds(family):
        return None
    spread = float(values.std(ddof=1))
    if not spread:
        return 0.0
    limit = stats.t.ppf(1 - ALPHA / family / 2, n - 1)

    def missing(shift: float) -> float:
        return float(stats.nct.sf(limit, n - 1, shift)) - POWER  # the far tail counts for nothing

    shift = optimize.brentq(missing, 0.0, 2 * limit + 5)
    return float(shift * spread / math.sqrt(n))


@dataclass(frozen=True)
class Flip:
    """Whether the sign on a dense task differs from the sign on classification.

    Attributes:
        n: Seeds that both tasks have.
        probability: Share of resampled seeds in which the two mean differences have opposite
            signs; None below two seeds.
        statement: What may be said, in words.
    """

    n: int
    probability: float | None
    statement: str


def flip(base: Difference, dense: Difference) -> Flip:
    """Resample seeds, the same for both tasks, and count opposite signs of the means."""
    first = dict(zip(base.seeds, base.values, strict=True))
    second = dict(zip(dense.seeds, dense.values, strict=True))
    seeds = sorted(first.keys() & second.keys())
    decided = {HELPS, HURTS} == {base.verdict, dense.verdict}
    agree = base.verdict == dense.verdict != UNDECIDED
    statement = "flip shown" if decided else "no flip" if agree else "undecided"
    if len(seeds) < 2:
        return Flip(len(seeds), None, statement)
    pairs = (np.array([first[s] for s in seeds]), np.array([second[s] for s in seeds]))

    def product(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
        return a.mean(axis=axis) * b.mean(axis=axis)

    with np.errstate(all="ignore"):
        resampled = stats.bootstrap(
            pairs, product, paired=True, n_resamples=9999, method="percentile", rng=0
        ).bootstrap_distribution
    return Flip(len(seeds), float((resampled < 0).mean()), statement)
