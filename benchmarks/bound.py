"""How often is a bound of `nppr bound` above the truth? At most 5 % is promised, for every one of them.

By simulation, for every set of noise and both claims. Noise that may see the input: each data set has
50 to 2,000 inputs of 16 to 100 draws, whose failure probabilities come from one of several laws, with
means from 0.001 to 0.5. Noise that does not: pattern j breaks an input if the input's latent number is
below that of the pattern, so that failures of one pattern go together; the worst noise of every set is
then known by optimisation over weights of the patterns. Example:

    python benchmarks/bound.py --data-sets 1000
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import repeat

import numpy as np

from nppr.core.tally import Claim, Evaluate, FloatArray, IntArray, Tally
from nppr.statistics.lower_bounds import (
    PerInputDraws,
    ReferenceDraws,
    estimate_bounds_jointly,
    lower_population,
    lower_test_set,
)
from nppr.statistics.noise_sets import (
    STATED_SETS,
    ChiSquare,
    Contaminated,
    Hellinger,
    KullbackLeibler,
    NoiseSet,
    Offset,
)
from nppr.statistics.shared_patterns import lower_shared, lower_shared_population

CONFIDENCE = 0.95
INPUTS = (50, 200, 500, 2000)
DRAWS = (16, 100)
PATTERNS = (64, 1000)
SETS: tuple[NoiseSet, ...] = (
    Contaminated(1.0),
    Contaminated(2.0),
    Contaminated(10.0),
    Contaminated(2.0, 0.01),
    Contaminated(1.0, 0.05, "tv"),
    ChiSquare(0.1),
    ChiSquare(1.0),
    KullbackLeibler(0.1),
    Hellinger(0.05),
    Offset(0.5),
)
GRID = 20_001
"""Points of the laws at which expectations are computed."""


@dataclass(frozen=True)
class Law:
    """Where numbers in [0, 1] come from: their quantile function."""

    name: str
    quantile: Callable[[FloatArray], FloatArray]

    def sample(self, rng: np.random.Generator, n: int) -> FloatArray:
        """N independent numbers."""
        return self.quantile(rng.random(n))

    @property
    def grid(self) -> FloatArray:
        """Numbers of equal weight, close to the law."""
        return self.quantile((np.arange(GRID) + 0.5) / GRID)


def power(mean: float, a: float = 4.0) -> Callable[[FloatArray], FloatArray]:
    """`m (a + 1) u^a` cut off at 1: a skewed law of about this mean."""
    return lambda u: np.minimum(1.0, mean * (a + 1) * u**a)


def some_fragile(share: float) -> Callable[[FloatArray], FloatArray]:
    """A share of inputs fails in most draws, the others in up to 1 %."""
    return lambda u: np.where(u < share, 1 - u / (2 * share), 0.01 * (1 - u))


LAWS = (
    Law("all at .001", lambda u: np.full_like(u, 0.001)),
    Law("skewed, mean .05", power(0.05)),
    Law("20 % fragile", some_fragile(0.2)),
    Law("all at .1", lambda u: np.full_like(u, 0.1)),
    Law("even, mean .5", lambda u: u),
)
"""Of the failure probabilities of inputs."""

PATTERN_LAWS = (
    Law("some patterns bad, .02", lambda u: np.where(u < 0.05, 0.2, 0.01)),
    Law("skewed patterns, .05", power(0.05)),
    Law("even patterns, .5", lambda u: u),
)
"""Of the fraction of the population that a pattern breaks."""


@dataclass(frozen=True)
class Case:
    """Something to simulate: `draw` gives the bounds and the truths of one data set, by claim."""

    name: str
    noise: str
    draw: Callable[[np.random.Generator, int], tuple[FloatArray, FloatArray]]


def sighted(law: Law, noise: NoiseSet) -> Case:
    """Bounds for noise that may see the input."""
    expected = float((1 - noise.h(law.grid)).mean())

    def draw(rng: np.random.Generator, seed: int) -> tuple[FloatArray, FloatArray]:
        inputs, draws = int(rng.choice(INPUTS)), int(rng.choice(DRAWS))
        p = law.sample(rng, inputs)
        wrong = rng.binomial(draws, p)
        found = (
            lower_test_set(wrong, draws, noise, CONFIDENCE, seed),
            lower_population(wrong, draws, noise, CONFIDENCE, seed),
        )
        return np.array(found), np.array([(1 - noise.h(p)).mean(), expected])

    return Case(law.name, noise.label, draw)


def blind(law: Law, noise: NoiseSet) -> Case:
    """Bounds for noise that does not see the input.

    Pattern j breaks the inputs whose latent number is below z_j.
    """
    z = law.grid
    expected = 1 - worst_shared(z, noise)

    def draw(rng: np.random.Generator, seed: int) -> tuple[FloatArray, FloatArray]:
        inputs, patterns = int(rng.choice(INPUTS)), int(rng.choice(PATTERNS))
        latent = np.sort(rng.random(inputs))
        failures = np.searchsorted(latent, law.sample(rng, patterns)) / inputs
        found = (
            lower_shared(failures, noise, CONFIDENCE, seed),
            lower_shared_population(failures, inputs, noise, CONFIDENCE, seed),
        )
        truth = 1 - worst_shared(np.searchsorted(latent, z[::20]) / inputs, noise)
        return np.array(found), np.array([truth, expected])

    return Case(law.name, noise.label, draw)


def worst_shared(failures: FloatArray, noise: NoiseSet) -> float:
    """The largest E_Q F of the set around equally likely patterns: their noise of largest F.

    The weights are the optimal ones of each set in closed form up to one number t; for offsets the
    patterns lie on a line, on which the noise moves.
    """
    f = np.sort(failures)[::-1]
    n = len(f)
    if isinstance(noise, Contaminated):
        left = 1 - noise.d - np.arange(n) * noise.c / n
        weights = np.clip(left, 0, noise.c / n)
        return float(weights @ f) + noise.d
    if isinstance(noise, Offset):
        u = (np.arange(n) + 0.5) / n
        return float(np.interp(noise.h(u), u, f[::-1]).mean())
    return _worst_hellinger(f, noise) if isinstance(noise, Hellinger) else _worst_tilt(f, noise)


def _worst_hellinger(f: FloatArray, noise: NoiseSet) -> float:
    """Weights `a / (1 - f + t)^2` that reach the distance, the mass left over on patterns of F = 1."""
    inverse = 1 / (1 - f + np.geomspace(1e-4, 1e3, 300)[:, None])
    a = np.square((1 - noise.size) / inverse.mean(1))
    mass = a * np.square(inverse).mean(1)
    correct = a * (np.square(inverse) * (1 - f)).mean(1)
    return 1 - float(correct[mass <= 1].min())


def _worst_tilt(f: FloatArray, noise: NoiseSet) -> float:
    """By bisection for the tilt t of the weights: small t favours the worst patterns more."""
    n = len(f)

    def weights(t: float) -> FloatArray:
        kl = isinstance(noise, KullbackLeibler)
        w: FloatArray = np.exp((f - f[0]) / t) if kl else np.maximum(f - f[0] + t, 0.0)
        return np.asarray(w / w.sum())

    def divergence(q: FloatArray) -> float:
        if isinstance(noise, KullbackLeibler):
            return float(np.sum(q * np.log(np.maximum(q * n, 1e-300))))
        return float(n * np.sum(q**2) - 1)

    low, high = -14.0, 14.0
    for _ in range(60):
        middle = (low + high) / 2
        inside = divergence(weights(math.exp(middle))) <= noise.size
        low, high = (low, middle) if inside else (middle, high)
    return float(weights(math.exp(high)) @ f)


def several(law: Law) -> Case:
    """The bounds of every report, which hold together: how often any of them is above its truth."""
    expected = [float((1 - each.h(law.grid)).mean()) for each in STATED_SETS]

    def draw(rng: np.random.Generator, seed: int) -> tuple[FloatArray, FloatArray]:
        inputs, draws = int(rng.choice(INPUTS)), int(rng.choice(DRAWS))
        p = law.sample(rng, inputs)
        rows = estimate_bounds_jointly(
            own(rng.binomial(draws, p), draws, seed), STATED_SETS, CONFIDENCE, infima=False
        )
        excess = np.full(2, -math.inf)
        for number, noise in enumerate(STATED_SETS):
            truths = (float((1 - noise.h(p)).mean()), expected[number])
            for claim in (0, 1):
                excess[claim] = max(excess[claim], rows[2 * number + claim].value - truths[claim])
        return excess, np.zeros(2)

    return Case(law.name, "all of a report", draw)


def own(wrong: IntArray, draws: int, seed: int) -> ReferenceDraws:
    """Counts as a tally."""
    everything, n = np.ones(len(wrong), bool), np.arange(len(wrong))
    tally = Tally(Evaluate, n, n, everything, draws - wrong, draws, len(wrong) * draws, 1)
    return PerInputDraws(tally, seed)


def cases() -> list[tuple[str, Callable[[], Case]]]:
    """Everything that is simulated, and how it is made."""
    return [
        *(("sees", partial(sighted, law, noise)) for law in LAWS for noise in SETS),
        *(("sees", partial(several, law)) for law in LAWS),
        *(("blind", partial(blind, law, noise)) for law in PATTERN_LAWS for noise in SETS),
    ]


def simulated(number: int, data_sets: int, seed: int) -> bool:
    """Print a line for each claim of a case; whether both are above the truth seldom enough."""
    kind, make = cases()[number]
    case = make()
    rng = np.random.default_rng(seed)
    pairs = [case.draw(rng, each) for each in range(data_sets)]
    found, truth = (np.array(each) for each in zip(*pairs, strict=True))
    above = (found > truth + 1e-9).mean(0)
    most = 1 - CONFIDENCE
    allowed = most + 2 * math.sqrt(most * (1 - most) / data_sets)
    for row, claim in enumerate((Claim.TEST_SET, Claim.POPULATION)):
        print(
            f"{kind:<8} {case.name:<24} {case.noise:<15} {claim.value:<15}"
            f" {truth[:, row].mean():7.4f} {found[:, row].mean():7.4f}"
            f" {100 * above[row]:6.1f} %{'' if above[row] <= allowed else '  TOO OFTEN'}",
            flush=True,
        )
    return bool(above.max() <= allowed)


def main() -> None:
    """Simulate and print; the exit code says whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-sets", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    start = time.perf_counter()
    print(
        "noise    failures                 set             claim             truth   bound    above"
    )
    with ProcessPoolExecutor() as pool:
        numbers = range(len(cases()))
        work = (numbers, repeat(given.data_sets), repeat(given.seed))
        good = list(pool.map(simulated, *work))
    print(
        f"{sum(good)} of {len(good)} cases are above the truth in at most 5 % + 2 standard errors"
    )
    print(f"{time.perf_counter() - start:.0f} seconds")
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
