"""Anytime-valid sequences and tests: look as often as you like, stop when you like.

Each rests on a process that starts at 1 and, while a hypothesis is true, is a nonnegative
supermartingale: it ever reaches 1/a with probability at most a (Ville, 1939).
"""

from __future__ import annotations

import math
from enum import StrEnum

import numpy as np
import scipy

from nppr.errors import SpecError
from nppr.statistics.betting import (
    CAP,
    MARGIN,
    anytime_bets,
    log_capital,
    predictions,
    require_shares,
    ruled_out,
)
from nppr.statistics.intervals import Interval, check_confidence
from nppr.tally import BoolArray, FloatArray, IntArray

_STEPS = 60
_COUNT_MARGIN = 1e-6
"""Excess of a log ratio over its threshold: above its rounding errors for up to 10^8 draws."""


class Verdict(StrEnum):
    """The outcome of a test of "the probability (or mean) is at least so much"."""

    HOLDS = "holds"
    VIOLATED = "violated"
    UNDECIDED = "undecided"


def mixture_sequence(
    successes: IntArray, draws: IntArray | int, confidence: float, a: float = 0.5, b: float = 0.5
) -> FloatArray:
    """Confidence sequence of a success probability, `(N,) -> (2, N)`.

    Guaranteed: with probability at least `confidence` the intervals of *all* looks at one growing
    count of independent draws contain its success probability p, and so does the intersection of the
    looks so far, which is narrower. When to look may depend on what was seen.

    A look excludes every p for which the mean likelihood over a Beta(a, b) distribution is at least
    `1 / (1 - confidence)` times that of p: under p this ratio is a martingale that starts at 1. In p it
    falls up to the observed share and rises from there, so the ends are found by bisection and rounded
    outwards. Reference: Robbins, Annals of Mathematical Statistics, 1970; Howard et al., Annals of
    Statistics, 2021.

    >>> mixture_sequence(np.array([0, 50]), np.array([0, 100]), 0.95).round(2).tolist()
    [[0.0, 0.34], [1.0, 0.66]]
    """
    successes, draws = np.broadcast_arrays(successes, draws)
    failures = draws - successes
    needed = math.log(1 / check_confidence(confidence)) + _COUNT_MARGIN
    mixed = scipy.special.betaln(a + successes, b + failures) - scipy.special.betaln(a, b)

    def excluded(p: FloatArray) -> BoolArray:
        likelihood = scipy.special.xlogy(successes, p) + scipy.special.xlog1py(failures, -p)
        return np.asarray(mixed - likelihood >= needed)

    share = np.where(draws == 0, 0.5, successes / np.maximum(draws, 1))
    ends = []
    for outer in (np.zeros_like(share), np.ones_like(share)):
        inside = share
        for _ in range(_STEPS):
            middle = (outer + inside) / 2
            out = excluded(middle)
            outer, inside = np.where(out, middle, outer), np.where(out, inside, middle)
        ends.append(outer)
    return np.stack(ends)


def one_sided_evidence(
    successes: IntArray | int,
    failures: IntArray | int,
    at_least: float,
    above: bool,
    a: float = 1.0,
    b: float = 0.5,
) -> FloatArray:
    """Log of the mean over q of the likelihood of q over that of `at_least`, `(N,) -> (N,)`.

    q has the Beta(a, b) distribution restricted to [at_least, 1] (`above`) or [0, at_least].

    Above: for every p <= at_least = t the ratio is a supermartingale. A draw multiplies the ratio of q
    by q/t if it succeeds and (1 - q)/(1 - t) if not; the expectation, p q/t + (1 - p)(1 - q)/(1 - t),
    is linear in p, 1 at p = t, and rises in p because q >= t; so it is at most 1 for p <= t. The same
    holds below, with p >= t. Means of supermartingales over q are supermartingales.
    """
    part = scipy.special.betaincc if above else scipy.special.betainc
    with np.errstate(divide="ignore"):
        inside = np.log(part(a + successes, b + failures, at_least)) - np.log(part(a, b, at_least))
    ratio = scipy.special.betaln(a + successes, b + failures) - scipy.special.betaln(a, b)
    boundary = successes * math.log(at_least) + failures * math.log1p(-at_least)
    return np.asarray(ratio + inside - boundary)


class BernoulliTest:
    """Sequential test of "the success probability is at least `at_least`" on independent draws.

    Guaranteed, at all looks together: if the probability is below `at_least`, the verdict is ever HOLDS
    with probability at most `1 - confidence`; if it is at least `at_least`, the same applies to
    VIOLATED. A verdict is final. The evidence is `one_sided_evidence` on either side.

    >>> test = BernoulliTest(0.9, confidence=0.95)
    >>> print(test.update(10, draws=10), test.update(90, draws=90))
    undecided holds
    """

    def __init__(self, at_least: float, confidence: float) -> None:
        _require_inside(at_least)
        self.at_least = at_least
        self.needed = math.log(1 / check_confidence(confidence)) + _COUNT_MARGIN
        self.verdict = Verdict.UNDECIDED
        self.correct = 0
        self.draws = 0

    def update(self, successes: int, draws: int) -> Verdict:
        """Add `draws` further draws, of which `successes` succeeded; the verdict so far."""
        if not 0 <= successes <= draws:
            raise SpecError(f"`successes` must lie in 0 ... draws, got {successes} of {draws}.")
        self.correct += successes
        self.draws += draws
        if self.verdict is Verdict.UNDECIDED:
            counts = self.correct, self.draws - self.correct, self.at_least
            if one_sided_evidence(*counts, above=True) >= self.needed:
                self.verdict = Verdict.HOLDS
            elif one_sided_evidence(*counts, above=False) >= self.needed:
                self.verdict = Verdict.VIOLATED
        return self.verdict


class BettingSequence:
    """Confidence sequence of the mean of independent numbers in [0, 1], which arrive in blocks.

    Guaranteed: with probability at least `confidence` the intervals of *all* looks contain the mean,
    for any distribution on [0, 1]; it is enough that each number has this mean whatever came before.
    Each interval is stretched to contain the mean of the numbers so far. The numbers must arrive in an
    order that does not depend on their values. The capital is split among players with horizons of 16
    to 65,536 numbers. Reference: Waudby-Smith and Ramdas, JRSS B, 2024.

    >>> sequence = BettingSequence(0.95)
    >>> wide, narrow = sequence.update(np.ones(50)), sequence.update(np.ones(50))
    >>> wide.low < narrow.low <= narrow.high
    True
    """

    def __init__(self, confidence: float) -> None:
        self.error = check_confidence(confidence) / 2
        self.x: FloatArray = np.empty(0)

    def update(self, x: FloatArray) -> Interval:
        """Add a block, `(N,)`; the interval after all numbers so far."""
        require_shares(x)
        self.x = np.concatenate([self.x, x])
        mean = float(self.x.mean())
        low, below = self._bound(self.x), self._bound(1 - self.x)
        return Interval(min(low, mean), max(1 - below, mean))

    def _bound(self, x: FloatArray) -> float:
        """The bound below which every candidate was ruled out at some time."""
        bets = anytime_bets(x, self.error)
        return ruled_out(lambda mean: float(log_capital(x, bets, mean).max()), self.error)


class MeanTest:
    """Sequential test of "the mean is at least `at_least`" on independent numbers in [0, 1].

    Guaranteed for any distribution on [0, 1], at all looks together: if the mean is below `at_least`,
    the verdict is ever HOLDS with probability at most `1 - confidence`; if it is at least `at_least`,
    the same applies to VIOLATED. A verdict is final. The numbers must arrive in an order that does not
    depend on their values.

    The evidence is the capital of betting that numbers are above m = `at_least`, and of betting that
    they are below: bets `(u - m) / (v + (u - m)^2)`, u and v the mean and variance expected from the
    past.
    Reference: Waudby-Smith and Ramdas, JRSS B, 2024 (approximate GRAPA bets, one side each).

    >>> MeanTest(0.9, confidence=0.95).update(np.ones(100))
    <Verdict.HOLDS: 'holds'>
    """

    def __init__(self, at_least: float, confidence: float) -> None:
        _require_inside(at_least)
        self.at_least = at_least
        self.needed = math.log(1 / check_confidence(confidence)) + MARGIN
        self.verdict = Verdict.UNDECIDED
        self.x: FloatArray = np.empty(0)

    def update(self, x: FloatArray) -> Verdict:
        """Add a block, `(N,)`; the verdict so far."""
        require_shares(x)
        self.x = np.concatenate([self.x, x])
        if self.verdict is Verdict.UNDECIDED:
            holds = self._decided(self.x, self.at_least)
            violated = self._decided(1 - self.x, 1 - self.at_least)
            if min(holds, violated) < len(self.x):
                self.verdict = Verdict.HOLDS if holds < violated else Verdict.VIOLATED
        return self.verdict

    def _decided(self, x: FloatArray, mean: float) -> int:
        """After how many numbers betting on x > mean won enough; the count of numbers if never."""
        expected, variance = predictions(x)
        gap = expected - mean
        bets = np.clip(gap / (variance + gap**2), 0, CAP / mean)
        reached = np.flatnonzero(np.cumsum(np.log1p(bets * (x - mean))) >= self.needed)
        return int(reached[0]) if len(reached) else len(x)


def _require_inside(at_least: float) -> None:
    if not 0 < at_least < 1:
        raise SpecError(f"`at_least` must lie in (0, 1), got {at_least}. Example: 0.9")
