"""Statistics against counts done by hand and simulations."""

from __future__ import annotations

import numpy as np
import pytest

from relpos_mm.study.stats import (
    HELPS,
    HURTS,
    UNDECIDED,
    Difference,
    fewest_seeds,
    flip,
    holm,
    paired,
    smallest_p,
)


def versus_zero(values: list[float], family: int = 1) -> Difference:
    """Return the difference of ``values`` against zeros, Holm's correction for one comparison."""
    zeros = dict.fromkeys(range(len(values)), 0.0)
    found = paired(dict(enumerate(values)), zeros, family)
    return Difference(**{**vars(found), "p_holm": found.p})


def test_exact_p_counts_sign_patterns() -> None:
    assert versus_zero([1, 2, 3, 4, 5, 6]).p == pytest.approx(2 / 2**6)
    # of the 8 patterns of 1, 2, 3 four lie as far out as 1 + 3 - 2 = 2 or beyond on either side
    sums = [abs(a + 2 * b + 3 * c) for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)]
    expected = sum(total >= 2 for total in sums) / 8
    assert versus_zero([1, -2, 3]).p == pytest.approx(expected)
    assert versus_zero([0.0] * 6).p == 1.0


def test_interval_is_the_t_interval() -> None:
    found = versus_zero([1.0, 2.0, 3.0])
    half = 4.302652729911275 * 1.0 / np.sqrt(3)  # t quantile at 97.5 %, 2 degrees of freedom
    assert found.mean == pytest.approx(2.0)
    assert found.interval == pytest.approx((2 - half, 2 + half))
    assert found.spread == pytest.approx(1.0)


@pytest.mark.parametrize(("family", "seeds"), [(1, 6), (2, 7), (3, 7), (4, 8)])
def test_fewest_seeds(family: int, seeds: int) -> None:
    assert fewest_seeds(family) == seeds
    assert smallest_p(seeds, family) <= 0.05 < smallest_p(seeds - 1, family)


def test_five_seeds_are_undecided_however_large_the_effect() -> None:
    five, six = versus_zero([100.0, 101, 99, 100, 102]), versus_zero([100.0, 101, 99, 100, 102, 98])
    assert (five.p, five.verdict, five.detectable) == (0.0625, UNDECIDED, None)
    assert (six.p, six.verdict) == (0.03125, HELPS)
    assert versus_zero([-v for v in six.values]).verdict == HURTS


def test_one_seed_is_undecided() -> None:
    found = versus_zero([5.0])
    assert (found.n, found.p, found.interval, found.verdict) == (1, 1.0, None, UNDECIDED)
    assert paired({1: 2.0}, {2: 1.0}).mean is None


def test_missing_and_nan_metrics_leave_their_seed_out() -> None:
    found = paired({1: 1.0, 2: None, 3: float("nan"), 4: 2.0}, {1: 0.0, 2: 0.0, 3: 0.0, 4: 0.5})
    assert found.seeds == (1, 4)
    assert found.values == (1.0, 1.5)


def test_holm() -> None:
    # 0.01 x 3; then 0.02 x 2; 0.2 x 1; never below the one before
    assert holm([0.02, 0.2, 0.01]) == pytest.approx([0.04, 0.2, 0.03])
    assert holm([0.04, 0.03]) == pytest.approx([0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_detectable_effect_is_found_four_times_in_five() -> None:
    generator = np.random.default_rng(0)
    noise = generator.normal(size=(4000, 8))
    scale = np.mean([versus_zero(list(row)).detectable / row.std(ddof=1) for row in noise[:3]])
    shifted = noise + scale  # in units of the true spread, 1
    t = shifted.mean(1) / shifted.std(1, ddof=1) * np.sqrt(8)
    found = (t > 2.364624251592785).mean()  # t quantile at 97.5 %, 7 degrees of freedom
    assert found == pytest.approx(0.8, abs=0.03)


def test_flip_is_shown_only_by_opposite_verdicts() -> None:
    up = versus_zero([1.0, 1.1, 0.9, 1.2, 1.0, 1.05])
    down = versus_zero([-1.0, -1.1, -0.9, -1.2, -1.0, -1.05])
    unsure = versus_zero([-1.0, 1.1, 0.9, -1.2, 1.0, -1.05])
    shown = flip(up, down)
    assert (shown.statement, shown.probability, shown.n) == ("flip shown", 1.0, 6)
    assert flip(up, up).statement == "no flip"
    assert flip(up, up).probability == 0.0
    maybe = flip(up, unsure)
    assert maybe.statement == UNDECIDED
    assert maybe.probability is not None
    assert 0.2 < maybe.probability < 0.8
    assert flip(versus_zero([1.0]), versus_zero([-1.0])).probability is None
