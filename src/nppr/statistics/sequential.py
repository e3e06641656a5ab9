"""Anytime-valid sequences and tests: look as often as you like, stop when you like.

Both rest on a process that starts at 1 and, if a hypothesis is true, is a nonnegative
supermartingale: it ever reaches 1/a with probability at most a (Ville, 1939).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

import numpy as np
import scipy

from nppr.core.tally import BoolArray, FloatArray, IntArray
from nppr.errors import SpecError
from nppr.statistics.betting import (
    ROUNDING_MARGIN,
    Bets,
    aimed_bets,
    log_capital,
    require_shares,
)
from nppr.statistics.intervals import Interval, check_confidence

_STEPS = 60
_MARGIN = 1e-6
"""Excess of a log ratio over its threshold: above its rounding errors for up to 10^8 draws."""


class Verdict(StrEnum):
    """The outcome of a test of "the probability is at least a threshold"."""

    HOLDS = "holds"
    VIOLATED = "violated"
    UNDECIDED = "undecided"


def mixture_sequence(
    successes: IntArray, draws: IntArray | int, confidence: float, a: float = 0.5, b: float = 0.5
) -> FloatArray:
    """Return the confidence sequence of a success probability, `(N,) -> (2, N)`.

    Guaranteed: with probability at least `confidence`, the intervals of *all* looks at one growing
    count of independent draws contain its success probability p. The same holds for the
    intersection of the looks so far, which is narrower. Earlier looks may decide when to look
    again.

    A look excludes every p for which the mean likelihood over a Beta(a, b) distribution is at least
    `1 / (1 - confidence)` times that of p: under p this ratio is a martingale that starts at 1. In
    p it decreases up to the observed share and increases from there, so the ends are found by
    bisection and rounded outwards. Reference: Robbins, Annals of Mathematical Statistics, 1970;
    Howard et al., Annals of Statistics, 2021.

    >>> mixture_sequence(np.array([0, 50]), np.array([0, 100]), 0.95).round(2).tolist()
    [[0.0, 0.34], [1.0, 0.66]]
    """
    successes, draws = np.broadcast_arrays(successes, draws)
    failures = draws - successes
    needed = math.log(1 / check_confidence(confidence)) + _MARGIN
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
    """Return the log of the mean likelihood over q divided by that of `at_least`, `(N,) -> (N,)`.

    q has the Beta(a, b) distribution restricted to [at_least, 1] (`above`) or [0, at_least].

    Above: for every p <= at_least = t the ratio is a supermartingale. A draw multiplies the ratio
    of q by q/t if it succeeds and (1 - q)/(1 - t) if not; the expectation, p q/t + (1 - p)(1 -
    q)/(1 - t), is linear in p, 1 at p = t, and increases in p because q >= t; so it is at most 1
    for p <= t. The same holds below, with p >= t. Means of supermartingales over q are
    supermartingales.
    """
    part = scipy.special.betaincc if above else scipy.special.betainc
    with np.errstate(divide="ignore"):
        inside = np.log(part(a + successes, b + failures, at_least)) - np.log(part(a, b, at_least))
    ratio = scipy.special.betaln(a + successes, b + failures) - scipy.special.betaln(a, b)
    boundary = successes * math.log(at_least) + failures * math.log1p(-at_least)
    return np.asarray(ratio + inside - boundary)


def one_sided_bound(successes: int, failures: int, confidence: float, *, above: bool) -> float:
    """Return the lower (`above`) or upper bound shown by `one_sided_evidence`, at all looks together.

    The evidence suffices against every t below the lower bound (above the upper bound), and against
    no other t: if it exceeds 1, it decreases in t up to the observed share and increases from
    there. So p lies beyond the bound of any look with probability at most `1 - confidence`.

    >>> round(one_sided_bound(64, 0, 0.95, above=True), 3), one_sided_bound(64, 0, 0.95, above=False)
    (0.943, 1.0)
    """
    outer = 0.0 if above else 1.0
    if (successes if above else failures) == 0:
        return outer
    needed = math.log(1 / check_confidence(confidence)) + _MARGIN
    inside = successes / (successes + failures)
    for _ in range(_STEPS):
        middle = (outer + inside) / 2
        if middle in (outer, inside):
            break
        shown = one_sided_evidence(successes, failures, middle, above=above) >= needed
        outer, inside = (middle, inside) if shown else (outer, middle)
    return outer


class BernoulliTest:
    """Sequential test of "the success probability is at least `at_least`" on independent draws.

    Guaranteed, at all looks together: if the probability is below `at_least`, the verdict is ever
    HOLDS with probability at most `1 - confidence`. If it is at least `at_least`, the same applies
    to VIOLATED, at `violated_confidence` if that is given. A verdict is final, and `bound` is the
    bound at the time of the verdict. The evidence is `one_sided_evidence` on either side.

    >>> test = BernoulliTest(0.9, confidence=0.95)
    >>> print(test.update(10, draws=10), test.update(90, draws=90))
    undecided holds
    """

    def __init__(
        self,
        at_least: float,
        confidence: float,
        violated_confidence: float | None = None,
    ) -> None:
        if not 0 < at_least < 1:
            raise SpecError(f"`at_least` must lie in (0, 1), got {at_least}. Example: 0.9")
        self.at_least = at_least
        self.confidence = confidence
        self.violated_confidence = violated_confidence or confidence
        self.needed = math.log(1 / check_confidence(confidence)) + _MARGIN
        self.verdict = Verdict.UNDECIDED
        self.bound: float | None = None
        self.correct = 0
        self.draws = 0

    def update(self, successes: int, draws: int) -> Verdict:
        """Add `draws` draws, of which `successes` succeeded; return the verdict so far."""
        if not 0 <= successes <= draws:
            raise SpecError(f"`successes` must lie in 0 ... draws, got {successes} of {draws}.")
        self.correct += successes
        self.draws += draws
        if self.verdict is Verdict.UNDECIDED:
            counts = self.correct, self.draws - self.correct
            for above, verdict, confidence in (
                (True, Verdict.HOLDS, self.confidence),
                (False, Verdict.VIOLATED, self.violated_confidence),
            ):
                needed = math.log(1 / check_confidence(confidence)) + _MARGIN
                if one_sided_evidence(*counts, self.at_least, above=above) >= needed:
                    self.verdict = verdict
                    self.bound = one_sided_bound(*counts, confidence, above=above)
        return self.verdict

    def bounds(self) -> Interval:
        """Return both bounds; later draws never loosen the bound that decided."""
        counts = self.correct, self.draws - self.correct
        low = one_sided_bound(*counts, self.confidence, above=True)
        high = one_sided_bound(*counts, self.violated_confidence, above=False)
        if self.bound is None:
            return Interval(low, high)
        if self.verdict is Verdict.HOLDS:
            return Interval(max(low, self.bound), high)
        return Interval(low, min(high, self.bound))


class Wager:
    """Bets, in rounds, that a mean lies above `level`.

    The numbers of a round are independent and have an expectation of at most the mean, given the
    earlier rounds. They lie between `least` and `most`, which only earlier rounds may determine. A
    wager divides its capital equally among several aims, the distances from the mean that its bets
    are made for, and never moves capital between them. If the mean is at most `level`, the capital
    ever exceeds 1/error with probability at most `error` (`nppr.statistics.betting`).
    """

    def __init__(self, level: float, error: float, seed: int) -> None:
        self.level, self.seed = level, seed
        self.needed = math.log(1 / error) + ROUNDING_MARGIN
        self.placed: list[tuple[list[Bets], float, float]] = []
        self.gains: FloatArray = np.zeros(1)

    @property
    def won(self) -> bool:
        """Whether the mean is shown to lie above the level."""
        return _capital(self.gains) >= self.needed

    def bet(
        self,
        before: FloatArray,
        new: FloatArray,
        aims: Sequence[float],
        least: float = 0.0,
        most: float = 1.0,
    ) -> None:
        """Bet on a round of numbers; all rounds have the same number of `aims`.

        `before` are numbers that may determine the bets; `aims` are in units of the range.
        """
        width = most - least
        known, shares = (np.clip((each - least) / width, 0, 1) for each in (before, new))
        seed = self.seed + len(self.placed)  # the order in a round must not follow another one
        bets = [aimed_bets(known, shares, aim, seed) for aim in aims]
        self.placed.append((bets, least, width))
        self.gains = self.gains + _gains(self.placed[-1], self.level)

    def bound(self) -> float:
        """Return a lower bound of the mean, with probability at least `1 - error` at all looks."""
        low, high = 0.0, 1.0
        for _ in range(_STEPS):
            middle = (low + high) / 2
            gains = sum((_gains(each, middle) for each in self.placed), np.zeros(1))
            low, high = (middle, high) if _capital(gains) >= self.needed else (low, middle)
        return low


def _gains(placed: tuple[list[Bets], float, float], mean: float) -> FloatArray:
    """Return the log of the factor by which a round multiplies each aim's capital, for this mean."""
    bets, least, width = placed
    return np.array([log_capital(*each, (mean - least) / width) for each in bets])


def _capital(gains: FloatArray) -> float:
    """Return the log of the mean capital over aims."""
    return float(np.logaddexp.reduce(gains, axis=None) - math.log(gains.size))


class MeanTest:
    """Sequential test of "the mean is at least `at_least`" on independent numbers in [0, 1].

    Guaranteed, at all looks together, by betting (`nppr.statistics.betting`): each wrong verdict
    has probability at most `1 - confidence`, and each end of `bounds` misses the mean with at most
    that probability. `aim` is the distance from the mean that the bets are made for. A verdict is
    final: later numbers are ignored.

    >>> print(MeanTest(0.4, 0.95, aim=0.1).update(np.full(64, 0.5)))
    holds
    """

    def __init__(self, at_least: float, confidence: float, aim: float, seed: int = 0) -> None:
        error = check_confidence(confidence)
        self.aim = aim
        self.above = Wager(at_least, error, seed)
        self.below = Wager(1 - at_least, error, seed)
        self.seen: FloatArray = np.zeros(0)
        self.verdict = Verdict.UNDECIDED

    def update(self, x: FloatArray) -> Verdict:
        """Add numbers `(n,)`, where n may depend on earlier numbers; return the verdict so far."""
        if self.verdict is not Verdict.UNDECIDED or not len(x):
            return self.verdict
        require_shares(x)
        self.above.bet(self.seen, x, [self.aim])
        self.below.bet(1 - self.seen, 1 - x, [self.aim])
        self.seen = np.concatenate([self.seen, x])
        self.verdict = combine_wagers(self.above, self.below)
        return self.verdict

    def bounds(self) -> Interval:
        """Return a lower and an upper bound of the mean."""
        return Interval(self.above.bound(), 1 - self.below.bound())


def combine_wagers(above: Wager, below: Wager) -> Verdict:
    """Return the verdict that two wagers on either side support."""
    if above.won:
        return Verdict.HOLDS
    return Verdict.VIOLATED if below.won else Verdict.UNDECIDED
