"""The statistics of a comparison: how far two step times may differ by chance. Everything is deterministic.

All of it works on natural logarithms of times, since noise multiplies a time and a ratio is a difference of logarithms.

* Several repeats a side: Welch's t interval for the difference of two means of unequal variance, degrees of freedom by
  Satterthwaite (B. L. Welch, "The generalization of Student's problem when several different population variances are
  involved", Biometrika 34, 1947). The repeats are the sample, never the steps: steps of one run share its machine, its
  placement and its clocks, so their spread says little about the next run (A. Georges, D. Buytaert and L. Eeckhout,
  "Statistically rigorous Java performance evaluation", OOPSLA 2007; T. Kalibera and R. Jones, "Rigorous benchmarking in
  reasonable time", ISMM 2013).
* One recording a side: steps follow one another and are correlated, so they are resampled in blocks that wrap around the end
  (D. N. Politis and J. P. Romano, "A circular block-resampling procedure for stationary data", 1992), with blocks of the cube
  root of their number (P. Hall, J. L. Horowitz and B.-Y. Jing, "On blocking rules for the bootstrap with dependent data",
  Biometrika 82, 1995). What differs between runs cannot be seen in one: a stated allowance stands for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

LEVEL = 0.95
_RESAMPLES = 2000
_SEED = 20240229
_FEWEST = 3  # steps from which on their spread says something
_FEW_STEPS_ERROR = 0.05  # relative error of the step of a recording with fewer
_WIDEST = 50.0
_FARTHEST = 600.0  # exp of this and of the widest interval beyond it still is a number
_RESOLUTION = 0.001  # no step is known better than to a thousandth

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """The logarithm of a ratio, and half the width of the interval that holds the true one with probability LEVEL."""

    log_ratio: float
    half: float

    def __post_init__(self) -> None:
        # Beyond this no figure says anything; impossible reports must not overflow.
        object.__setattr__(self, "half", min(self.half, _WIDEST))
        object.__setattr__(self, "log_ratio", min(max(self.log_ratio, -_FARTHEST), _FARTHEST))

    @property
    def ratio(self) -> float:
        return math.exp(self.log_ratio)

    @property
    def low(self) -> float:
        return math.exp(self.log_ratio - self.half)

    @property
    def high(self) -> float:
        return math.exp(self.log_ratio + self.half)

    @property
    def noise(self) -> float:
        """By how much the ratio may differ from 1 by chance: 0.03 is 3 %."""
        return math.expm1(self.half)

    @property
    def differs(self) -> bool:
        """True if the interval leaves out a ratio of 1."""
        return abs(self.log_ratio) > self.half


def standard_error(samples: Sequence[float], statistic: Callable[..., Any] = np.median) -> float:
    """Relative standard error of the statistic (np.median or np.mean) of correlated times, by the circular block bootstrap.

    Few samples make it too small: it is widened by Student's t against the normal distribution.
    """
    times = np.asarray(samples, np.float64)
    n = len(times)
    if n < _FEWEST or not (times > 0).all():
        return _FEW_STEPS_ERROR
    block = max(round(n ** (1 / 3)), 1)
    blocks = -(-n // block)
    begin = np.random.default_rng(_SEED).integers(0, n, (_RESAMPLES, blocks))
    index = (begin[:, :, None] + np.arange(block)) % n
    drawn: Array = statistic(times[index.reshape(_RESAMPLES, -1)[:, :n]], axis=1)
    # Percentiles, not the deviation: a single odd step among seven would rule that.
    low, high = (float(one) for one in np.quantile(np.log(drawn), [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
    spread = (high - low) / (2 * t_quantile(math.inf))
    return max(spread * math.sqrt(n / (n - 1)) * t_quantile(n - 1) / t_quantile(math.inf), _RESOLUTION)


def spread_error(low: float, high: float, count: int) -> float:
    """The same from the 10th and 90th percentile of so many steps, taken as log-normal and independent."""
    if count < _FEWEST or not 0 < low <= high:
        return _FEW_STEPS_ERROR
    deviation = math.log(high / low) / (2 * 1.2815515655446004)  # the normal distribution's 90th percentile
    # The median of normal data has a standard error of sqrt(pi / 2) that of the mean.
    return max(math.sqrt(math.pi / 2) * deviation / math.sqrt(count), _RESOLUTION)


def single(base: float, head: float, errors: Sequence[float]) -> Interval:
    """One recording a side: logarithms of both, and all independent relative errors of them."""
    return Interval(head - base, t_quantile(math.inf) * math.sqrt(sum(error**2 for error in errors)))


def repeated(base: Sequence[float], head: Sequence[float], within: Sequence[float], systematic: float = 0.0) -> Interval:
    """Repeats: logarithms of the steps of both sides. At least one side has two; where one has a single, it is taken to
    spread like the other.

    within: relative errors of the repeats themselves, below which their spread cannot lie but by chance. systematic: an error
    that all repeats of a side share.
    """
    least = float(np.mean(np.square(within))) if len(within) else 0.0
    parts = []  # (variance of the mean, degrees of freedom)
    known = [values for values in (base, head) if len(values) > 1]
    for values in (base, head):
        spread = values if len(values) > 1 else known[0]
        variance = max(float(np.var(spread, ddof=1)), least, _RESOLUTION**2)
        parts.append((variance / len(values), len(spread) - 1))
    total = sum(variance for variance, _ in parts)
    if len(known) == 1:
        freedom = float(parts[0][1])
    else:
        freedom = total**2 / sum(variance**2 / n for variance, n in parts)
    error = t_quantile(freedom) * math.sqrt(total)
    half = math.hypot(error, t_quantile(math.inf) * systematic)
    return Interval(float(np.mean(head) - np.mean(base)), half)


def t_quantile(freedom: float, probability: float = (1 + LEVEL) / 2) -> float:
    """Quantile of Student's t distribution (of the normal one for infinite degrees of freedom), to about nine digits.

    The distribution function by Simpson's rule after x = sqrt(f) tan(u), which makes the integrand cos(u)^(f-1) on a finite
    interval; the root by bisection. probability within 0.5 .. 1.
    """
    if math.isinf(freedom):
        freedom = 1e7
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)

    def below(angle: float) -> float:
        # Where f is large everything happens near 0: half the distribution lies below 0.
        grid = np.linspace(0.0, angle, 2001)
        value = np.cos(grid) ** (freedom - 1)
        weight = np.full(2001, 2.0)
        weight[1::2] = 4.0
        weight[[0, -1]] = 1.0
        return 0.5 + scale * float((weight * value).sum()) * angle / 6000

    low, high = 0.0, math.atan(1e3 / math.sqrt(freedom)) if freedom > 2 else math.pi / 2
    if freedom > 30:
        high = math.atan(10 / math.sqrt(freedom))
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < probability else (low, middle)
    return math.sqrt(freedom) * math.tan((low + high) / 2)
