"""What paired differences at equal seed can say, and what they cannot.

The verdict's rule stands here, before any data: a difference *helps* or *hurts* when its exact
two-sided permutation p value, corrected by Holm over the comparisons of the same question and
metric, is at most :data:`ALPHA` and the 95 % interval of the mean leaves out zero; everything else
is *undecided*. One seed is always undecided, and an exact two-sided test of ``n`` pairs cannot give
less than ``2 / 2**n``: six pairs are the fewest that can decide one comparison at 5 %.

Exact means that all sign patterns are counted, up to 16 pairs; of more pairs as many patterns are
drawn. Metrics are accuracies of finite sets, so equal differences are common and must count as
equal: they are whole numbers of the sixth significant digit of the metric here, whose sums have no
rounding errors. (Evaluators hand some metrics over in float32, which has seven digits.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import optimize, stats

ALPHA = 0.05
POWER = 0.8
HELPS, HURTS, UNDECIDED = "helps", "hurts", "undecided"
# scipy enumerates all sign patterns up to here (16 pairs) and samples beyond.
_PATTERNS = 2**16
# Significant digits of a metric that differences keep.
_DIGITS = 6
# The power of the rule is found by enumeration up to here; with more pairs it is a t test's.
_ENUMERATED = 12


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
        detectable: Smallest true difference that the rule calls with a probability of 80 % from
            this many pairs of this spread, were they normal; None where no size would do.
        units: The differences are whole numbers over this one.
    """

    seeds: tuple[int, ...]
    values: tuple[float, ...]
    mean: float | None
    interval: tuple[float, float] | None
    p: float | None
    p_holm: float | None = None
    detectable: float | None = None
    units: float = 10.0**_DIGITS

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
    if not seeds:
        return Difference((), (), None, None, None)
    both = np.array([[one[s], other[s]] for s in seeds], dtype=float)
    units = _units(both)
    whole = np.rint((both[:, 0] - both[:, 1]) * units)
    values = whole / units
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
        _exact_p(whole),
        detectable=_detectable(values, family),
        units=units,
    )


def _units(metric: np.ndarray) -> float:
    """Return how many of the last digit that counts are 1: 1e4 of percents, 1e6 of fractions."""
    largest = float(np.abs(metric).max())
    return 10.0 ** (_DIGITS - math.ceil(math.log10(largest))) if largest else 1.0


def _exact_p(whole: np.ndarray) -> float:
    """Return the share of sign patterns whose mean is as far from zero, on either side."""
    if len(whole) == 1:
        return 1.0  # both patterns are equally far; scipy wants two observations
    exact = stats.permutation_test(
        (whole,), np.mean, permutation_type="samples", n_resamples=_PATTERNS, rng=0
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


def chance_of_verdict(n: int, family: int = 1) -> float:
    """Return the greatest chance that one of ``family`` is decided by ``n`` pairs without effect.

    Below the nominal 5 %, because an exact test takes few values.
    """
    if 2**n > _PATTERNS:
        return ALPHA / family
    return math.floor(ALPHA / family * 2 ** (n - 1)) * 2.0 / 2**n if n else 0.0


def fewest_seeds(family: int = 1) -> int:
    """Return the fewest pairs with which an exact two-sided test can decide at 5 %."""
    return next(n for n in range(1, 64) if smallest_p(n, family) <= ALPHA)


def _detectable(values: np.ndarray, family: int) -> float | None:
    n = len(values)
    if n < fewest_seeds(family):
        return None
    return _shift(n, family) * float(values.std(ddof=1))


@lru_cache
def _shift(n: int, family: int) -> float:
    """Return the true mean, in standard deviations, that the rule calls with :data:`POWER`."""
    limit = stats.t.ppf(1 - ALPHA / family / 2, n - 1)
    enough = 2 * limit + 5.0  # of a standard error
    if n > _ENUMERATED:

        def missing(shift: float) -> float:
            return float(stats.nct.sf(limit, n - 1, shift)) - POWER

        return float(optimize.brentq(missing, 0.0, enough)) / math.sqrt(n)
    # A pattern and its opposite are equally far from zero, so half of them are all.
    signs = 1.0 - 2.0 * (np.arange(2 ** (n - 1))[:, None] >> np.arange(n) & 1)
    draws = min(20_000, 2**23 // len(signs))
    noise = np.random.default_rng(0).standard_normal((n, draws))
    sums, weights = signs @ noise, signs.sum(1)

    def lacking(shift: float) -> float:
        moved = sums + shift * weights[:, None]
        own = moved[0]  # no sign is changed
        p = (np.abs(moved) >= np.abs(own) * (1 - 1e-12)).mean(0)
        error = (noise + shift).std(0, ddof=1) / math.sqrt(n)
        interval = own / n > stats.t.ppf(0.975, n - 1) * error
        return float(((p * family <= ALPHA) & interval).mean()) - POWER

    return float(optimize.bisect(lacking, 0.0, enough, xtol=1e-3))


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
    first, second = _whole_by_seed(base), _whole_by_seed(dense)
    seeds = sorted(first.keys() & second.keys())
    decided = {HELPS, HURTS} == {base.verdict, dense.verdict}
    agree = base.verdict == dense.verdict != UNDECIDED
    statement = "flip shown" if decided else "no flip" if agree else "undecided"
    if len(seeds) < 2:
        return Flip(len(seeds), None, statement)
    pairs = (np.array([first[s] for s in seeds]), np.array([second[s] for s in seeds]))

    # Sums of whole numbers: a mean of zero is zero, and no change of sign.
    def product(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
        return a.sum(axis=axis) * b.sum(axis=axis)

    with np.errstate(all="ignore"):
        resampled = stats.bootstrap(
            pairs, product, paired=True, n_resamples=9999, method="percentile", rng=0
        ).bootstrap_distribution
    return Flip(len(seeds), float((resampled < 0).mean()), statement)


def _whole_by_seed(difference: Difference) -> dict[int, float]:
    whole = np.rint(np.array(difference.values) * difference.units)
    return dict(zip(difference.seeds, map(float, whole), strict=True))
