"""Lower bounds for all noise of a set that does not see the input.

Such noise is one law for all inputs, so its worst case cannot adapt to each input, and the bound is
much sharper than one for noise that sees the input. M patterns are drawn from the reference, the
same for all inputs, and F_j is the fraction of the clean-correct inputs that pattern j breaks. The
failure probability of noise Q of the set is E_Q F, bounded by the dual of `NoiseSet`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nppr.core.tally import Claim, FloatArray
from nppr.statistics.betting import betting_lower
from nppr.statistics.intervals import (
    RESAMPLES,
    Interval,
    check_confidence,
    chernoff_upper,
    percentiles,
)
from nppr.statistics.lower_bounds import ReferenceDraws, predict_bound
from nppr.statistics.noise_sets import NoiseSet


@dataclass(frozen=True, eq=False)
class SharedPatterns(ReferenceDraws):
    """Draws that all inputs share, for bounds that hold for noise that does not see the input.

    The estimate is the dual at the mean score of all patterns; its spread is over patterns.
    """

    sees_input = False
    methods: ClassVar = {Claim.TEST_SET: "betting", Claim.POPULATION: "betting + chernoff"}

    @property
    def failures(self) -> FloatArray:
        """The fraction of the clean-correct inputs that each pattern breaks, `(draws,)`."""
        tally = self.tally
        assert tally.outcomes is not None, "a tally of shared patterns keeps every outcome"
        bits = np.unpackbits(tally.outcomes[tally.clean_correct], axis=1, count=tally.draws)
        failures: FloatArray = 1 - bits.mean(0, dtype=np.float64)
        return failures

    def lower(self, claim: Claim, noise: NoiseSet, confidence: float) -> float:
        if claim is Claim.TEST_SET:
            return lower_shared(self.failures, noise, confidence, self.seed)
        inputs = int(self.tally.clean_correct.sum())
        return lower_shared_population(self.failures, inputs, noise, confidence, self.seed)

    def infimum(self, noise: NoiseSet, confidence: float) -> tuple[float, Interval]:
        return _estimate(self.failures, noise, confidence, self.seed)


def lower_shared(failures: FloatArray, noise: NoiseSet, confidence: float, seed: int = 0) -> float:
    """Return a lower bound of `1 - E_Q F` for all Q of the set, on *these* inputs; F is `failures`.

    Guaranteed with probability at least `confidence`: a random quarter of the patterns chooses the
    tuning value t, and betting bounds the mean score of the others. Only the patterns and the draw
    of `seed` are random.
    """
    few, rest = _split(failures, seed)
    if not len(few):
        return 0.0
    t = _tuned(few, noise, check_confidence(confidence), len(rest))
    high = 1 - betting_lower(1 - np.clip(noise.score(rest, t), 0, 1), confidence, seed)
    return max(0.0, 1 - noise.shared_worst(high, t))


def lower_shared_population(
    failures: FloatArray, inputs: int, noise: NoiseSet, confidence: float, seed: int = 0
) -> float:
    """Return the same bound for the population that the inputs were drawn from, independently.

    The worst noise Q* of the population does not depend on this test set. On the test set it fails
    in a fraction X of its draws, the mean of `inputs` independent numbers in [0, 1]; X is at most
    S, the worst of the test set, which `lower_shared` bounds with half of the error. The other half
    bounds the mean of X (Chernoff and Hoeffding). So the step from S to the population costs no
    factor c.
    """
    half = check_confidence(confidence) / 2
    worst = 1 - lower_shared(failures, noise, 1 - half, seed)
    return 1 - chernoff_upper(worst, inputs, half)


def _split(failures: FloatArray, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return a random quarter of the patterns, and the others."""
    order = np.random.default_rng(seed).permutation(len(failures))
    few, rest = np.split(failures[order], [len(failures) // 4])
    return few, rest


def _tuned(few: FloatArray, noise: NoiseSet, error: float, n: int) -> float:
    """Return the tuning value that promises the lowest bound with n further patterns like these."""

    def promise(t: float) -> float:
        high = 1 - predict_bound(1 - noise.score(few, t), error, n, 1.0)
        return noise.shared_worst(min(1.0, high), t)

    return float(min(noise.tunings(few), key=promise))


def _estimate(
    failures: FloatArray, noise: NoiseSet, confidence: float, seed: int
) -> tuple[float, Interval]:
    """Return the dual at the mean score of all patterns and its best tuning value, with percentiles."""

    def infimum(mean: float, t: float) -> float:
        return max(0.0, 1 - noise.shared_worst(min(1.0, mean), t))

    t = max(
        noise.tunings(failures).tolist(),
        key=lambda t: infimum(float(noise.score(failures, t).mean()), t),
    )
    scores, counts = np.unique(noise.score(failures, t), return_counts=True)
    random, n = np.random.default_rng(seed), len(failures)
    drawn = random.multinomial(n, counts / n, size=RESAMPLES) @ scores / n
    spread = percentiles(np.array([infimum(float(each), t) for each in drawn]), confidence)
    value = infimum(float(scores @ counts) / n, t)
    return value, Interval(min(value, spread.low), max(value, spread.high))
