"""Statistics against counts done by hand and simulations."""

from __future__ import annotations

import numpy as np
import pytest

from relpos_mm.study.stats import (
    HELPS,
    HURTS,
    UNDECIDED,
    Difference,
    chance_of_verdict,
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
    assert chance_of_verdict(seeds, family) > 0 == chance_of_verdict(seeds - 1, family)
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


def test_equal_differences_tie_whatever_their_last_digits_are() -> None:
    control = [81.9, 82.4, 80.1, 83.3, 79.7, 81.1, 82.0]
    tenths = [10, -6, 2, 11, 17, 18, 6]
    variant = [float(np.float32(c + t / 10)) for c, t in zip(control, tenths, strict=True)]
    found = paired(dict(enumerate(variant)), dict(enumerate(map(np.float32, control))))
    signs = np.array(np.meshgrid(*[(-1, 1)] * 7)).reshape(7, -1)
    expected = np.mean(np.abs(np.array(tenths) @ signs) >= sum(tenths))
    assert found.p == expected == 8 / 128
    assert found.values == (1.0, -0.6, 0.2, 1.1, 1.7, 1.8, 0.6)


def test_detectable_effect_of_six_needs_all_of_one_sign() -> None:
    # All six normal differences above zero: Phi(d) ** 6 = 0.8 at d = 1.7927, and the interval has
    # to leave out zero, too, which a few of them do not.
    values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    effect = versus_zero(values).detectable / np.std(values, ddof=1)
    assert 1.7927 < effect < 1.7927 * 1.03


@pytest.mark.parametrize(("n", "family"), [(8, 1), (7, 2)])
def test_detectable_effect_is_called_four_times_in_five(n: int, family: int) -> None:
    noise = np.random.default_rng(1).normal(size=(300, n))
    example = versus_zero(list(noise[0]), family)
    shifted = noise + example.detectable / example.spread  # in units of the true spread, 1
    found = [versus_zero(list(row), family) for row in shifted]
    called = [Difference(**{**vars(one), "p_holm": one.p * family}).verdict for one in found]
    assert np.mean([verdict == HELPS for verdict in called]) == pytest.approx(0.8, abs=0.08)


def test_enumeration_and_t_test_meet() -> None:
    effects = [versus_zero(list(range(n))).detectable / np.std(range(n), ddof=1) for n in (12, 13)]
    assert 0.9 < effects[1] / effects[0] < 1


def test_a_mean_of_zero_is_no_change_of_sign() -> None:
    base = versus_zero([0.1, 0.2, -0.3])
    dense = versus_zero([0.7, 0.8, 0.9])
    means = [sum(draw) for draw in np.array(np.meshgrid(*[(1, 2, -3)] * 3)).reshape(3, -1).T]
    expected = np.mean([mean < 0 for mean in means])
    assert flip(base, dense).probability == pytest.approx(expected, abs=0.02)
    assert np.mean([mean <= 0 for mean in means]) > expected + 0.1


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


def test_the_chance_of_a_verdict_is_the_share_of_patterns_that_decide() -> None:
    for n in range(1, 8):
        ps = [paired(*_signs(pattern, n)).p for pattern in range(2**n)]
        assert chance_of_verdict(n) == sum(p <= 0.05 for p in ps) / 2**n
    assert chance_of_verdict(20, 2) == 0.025  # patterns are drawn there
    assert chance_of_verdict(0) == 0


def _signs(pattern: int, n: int) -> tuple[dict[int, float], dict[int, float]]:
    """Differences whose sums are all different, with the signs of a bit pattern."""
    one = {seed: 50.0 + (2**seed if pattern >> seed & 1 else -(2**seed)) / 100 for seed in range(n)}
    return one, dict.fromkeys(range(n), 50.0)
