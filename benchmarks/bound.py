"""How often is the bound of `nppr bound` above the truth? At most 5 % is promised, for both claims.

By simulation: each data set has 200 to 500 inputs of 16 to 100 draws, and the failure probabilities of
its inputs come from a law for which the expectation of max(0, 1 - c p) is known. Example:

    python benchmarks/bound.py --data-sets 1000
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from nppr.statistics.density_ratio import lower_mean_clipped, lower_population
from scipy import stats

from nppr.tally import FloatArray

CONFIDENCE = 0.95
RATIOS = (1.0, 2.0, 5.0, 10.0)
INPUTS, DRAWS = (200, 500), (16, 100)
HEAD = "failure probabilities   c  claim        truth   bound    above the truth"


@dataclass(frozen=True)
class Law:
    """Where failure probabilities come from, and the expectation of max(0, 1 - c p)."""

    name: str
    sample: Callable[[np.random.Generator, int], FloatArray]
    expected: Callable[[float], float]


def bimodal(rng: np.random.Generator, inputs: int) -> FloatArray:
    """One input in five is fragile."""
    fragile = rng.random(inputs) < 0.2
    return np.where(fragile, rng.uniform(0.5, 1, inputs), rng.uniform(0, 0.01, inputs))


def skewed(c: float) -> float:
    """Of Beta(.5, 5): the mass below 1/c, less c times the mean there."""
    return float(stats.beta.cdf(1 / c, 0.5, 5) - c * 0.5 / 5.5 * stats.beta.cdf(1 / c, 1.5, 5))


LAWS = (
    Law("all tiny, U(0, .002)", lambda rng, n: rng.uniform(0, 0.002, n), lambda c: 1 - 0.001 * c),
    Law("bimodal", bimodal, lambda c: 0.8 * (1 - 0.005 * c) + (0.05 if c == 1 else 0)),
    Law("Beta(.5, 5)", lambda rng, n: rng.beta(0.5, 5, n), skewed),
    Law("all at 1/10", lambda _, n: np.full(n, 0.1), lambda c: max(0.0, 1 - 0.1 * c)),
)


def simulated(law: Law, c: float, data_sets: int, seed: int) -> bool:
    """Print a line for each claim; whether both are above the truth seldom enough."""
    rng = np.random.default_rng(seed)
    found = np.empty((2, data_sets))
    truth = np.empty((2, data_sets))
    for i in range(data_sets):
        inputs, draws = (int(rng.integers(low, high + 1)) for low, high in (INPUTS, DRAWS))
        p = law.sample(rng, inputs)
        wrong = rng.binomial(draws, p)
        truth[:, i] = np.maximum(0, 1 - c * p).mean(), law.expected(c)
        found[:, i] = (
            lower_mean_clipped(wrong, draws, c, CONFIDENCE, i),
            lower_population(wrong, draws, c, CONFIDENCE, i),
        )
    above = (found > truth + 1e-12).mean(1)
    for row, claim in enumerate(("test set", "population")):
        error = math.sqrt(above[row] * (1 - above[row]) / data_sets)
        print(
            f"{law.name:<20} {c:4g}  {claim:<10}  {truth[row].mean():.4f}  {found[row].mean():.4f}"
            f"  {100 * above[row]:5.1f} % +- {100 * error:.1f}",
            flush=True,
        )
    most = 1 - CONFIDENCE
    return bool(above.max() <= most + 2 * math.sqrt(most * (1 - most) / data_sets))


def main() -> None:
    """Simulate and print; the exit code says whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-sets", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    start = time.perf_counter()
    print(HEAD)
    good = [simulated(law, c, given.data_sets, given.seed) for law in LAWS for c in RATIOS]
    print(
        f"{sum(good)} of {len(good)} cases are above the truth in at most 5 % + 2 standard errors"
    )
    print(f"{time.perf_counter() - start:.0f} seconds")
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
