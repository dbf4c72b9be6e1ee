"""The statistics of a comparison: known values, coverage of the intervals, invariances."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.comparing.statistics import Interval, repeated, single, spread_error, standard_error, t_quantile


@pytest.mark.parametrize(
    ("freedom", "quantile"),  # of tables of Student's t, 97.5 %
    [(1, 12.7062047), (2, 4.30265273), (3, 3.18244631), (5, 2.57058184), (10, 2.22813885), (30, 2.04227246), (31, 2.03951345)],
)
def test_t_quantile(freedom: int, quantile: float) -> None:
    assert t_quantile(freedom) == pytest.approx(quantile, abs=1e-7)


def test_t_quantile_of_the_normal_distribution() -> None:
    assert t_quantile(math.inf) == pytest.approx(1.959963985, abs=1e-6)
    assert t_quantile(math.inf, 0.9) == pytest.approx(1.281551566, abs=1e-6)


def test_welch_as_worked_by_hand() -> None:
    # Variances 1e-4 and 4e-4 of three each: v = (a + b)^2 / (a^2/2 + b^2/2) = 2.941, t = 3.2145 of scipy.stats.t.ppf.
    base, head = [-0.01, 0.0, 0.01], [0.08, 0.10, 0.12]
    found = repeated(base, head, [])
    assert found.log_ratio == pytest.approx(0.10)
    freedom = (5e-4 / 3) ** 2 / ((1e-4 / 3) ** 2 / 2 + (4e-4 / 3) ** 2 / 2)
    assert freedom == pytest.approx(2.941, abs=1e-3)
    assert found.half == pytest.approx(t_quantile(freedom) * math.sqrt(5e-4 / 3), rel=1e-6)
    assert found.differs and found.low < 1.105 < found.high


def test_repeats_on_one_side_lend_their_spread_to_the_other() -> None:
    found = repeated([0.0, 0.02, 0.04], [0.02], [])
    assert found.half == pytest.approx(t_quantile(2) * 0.02 * math.sqrt(1 / 3 + 1))


def test_repeats_that_agree_by_chance_are_not_more_exact_than_their_own_steps() -> None:
    assert repeated([0.0, 0.0], [0.01, 0.01], [0.02] * 4).half > 0.05
    assert repeated([0.0, 0.0], [0.01, 0.01], []).half > 0


def test_the_interval_of_repeats_covers_the_truth() -> None:
    draw = np.random.default_rng(1)
    hits = 0
    for _ in range(1000):
        base, head = draw.normal(0, 0.02, 3), draw.normal(0.05, 0.02, 4)
        found = repeated(list(base), list(head), [])
        hits += abs(found.log_ratio - 0.05) <= found.half
    assert 0.935 <= hits / 1000 <= 0.98


@pytest.mark.parametrize("statistic", [np.median, np.mean])
def test_the_bootstrap_knows_the_error_of_correlated_steps(statistic: object) -> None:
    # Steps with correlation 0.6 from one to the next: taken as independent, the error would come out at half.
    draw = np.random.default_rng(2)
    values, errors = [], []
    for _ in range(200):
        noise = draw.normal(0, 0.02, 130)
        steps = np.zeros(130)
        for i in range(1, 130):
            steps[i] = 0.6 * steps[i - 1] + noise[i]
        times = np.exp(steps[30:]) * 1e7
        values.append(float(np.log(statistic(times))))  # type: ignore[operator]
        errors.append(standard_error(times, statistic))  # type: ignore[arg-type]
    true, told = float(np.std(values)), float(np.mean(errors))
    independent = 0.025 / math.sqrt(100) * (1.25 if statistic is np.median else 1)
    assert 0.7 * true < told < 1.4 * true and told > 1.2 * independent


def test_one_odd_step_does_not_rule_the_error() -> None:
    steady = [65.9, 66.0, 65.8, 66.1, 65.9, 65.7]
    assert standard_error([22.9, *steady]) < 0.02 < standard_error([40, 66, 30, 80, 50, 90, 35])


def test_deterministic() -> None:
    times = [10.0, 10.5, 9.8, 11.0, 10.2]
    assert standard_error(times) == standard_error(times)


@pytest.mark.parametrize("times", [[], [1.0], [1.0, 2.0], [1.0, 0.0, 2.0, 3.0], [-1.0, 1.0, 1.0]])
def test_too_few_or_impossible_steps(times: list[float]) -> None:
    assert standard_error(times) == 0.05


def test_error_from_percentiles() -> None:
    draw = np.random.default_rng(3)
    times = np.exp(draw.normal(0, 0.03, 4000)) * 1e7
    low, high = np.quantile(times, [0.1, 0.9])
    assert spread_error(low, high, 100) == pytest.approx(1.2533 * 0.03 / 10, rel=0.05)
    assert spread_error(0, 0, 100) == spread_error(5, 4, 100) == spread_error(1, 2, 2) == 0.05


LOGS = st.lists(st.floats(-1, 1), min_size=1, max_size=6)


@settings(max_examples=100, deadline=None)
@given(LOGS, LOGS, st.floats(-2, 2))
def test_swapping_sides_mirrors_the_interval(base: list[float], head: list[float], shift: float) -> None:
    if len(base) == len(head) == 1:
        there, back = single(base[0], head[0], [0.01]), single(head[0], base[0], [0.01])
    else:
        there, back = repeated(base, head, [0.01]), repeated(head, base, [0.01])
        moved = repeated([x + shift for x in base], [x + shift for x in head], [0.01])
        assert moved.log_ratio == pytest.approx(there.log_ratio, abs=1e-9) and moved.half == pytest.approx(there.half, rel=1e-6)
    assert there.log_ratio == pytest.approx(-back.log_ratio) and there.half == pytest.approx(back.half)
    assert there.low * back.high == pytest.approx(1, rel=1e-9)


def test_an_interval() -> None:
    one = Interval(math.log(1.2), math.log(1.1))
    assert one.ratio == pytest.approx(1.2) and one.low == pytest.approx(1.2 / 1.1) and one.high == pytest.approx(1.32)
    assert one.noise == pytest.approx(0.1) and one.differs and not Interval(0.01, 0.02).differs
