"""Anytime-valid sequences and tests: look as often as you like, stop when you like.

Both rest on a process that starts at 1 and, while a hypothesis is true, is a nonnegative
supermartingale: it ever reaches 1/a with probability at most a (Ville, 1939).
"""

from __future__ import annotations

import math
from enum import StrEnum

import numpy as np
import scipy

from nppr.errors import SpecError
from nppr.statistics.betting import (
    MARGIN,
    Bets,
    aimed_bets,
    largest_excluded,
    log_capital,
    require_shares,
)
from nppr.statistics.intervals import Interval, check_confidence
from nppr.tally import BoolArray, FloatArray, IntArray

_STEPS = 60
_MARGIN = 1e-6
"""Excess of a log ratio over its threshold: above its rounding errors for up to 10^8 draws."""


class Verdict(StrEnum):
    """The outcome of a test of "the probability is at least so much"."""

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


def one_sided_bound(successes: int, failures: int, confidence: float, *, above: bool) -> float:
    """The lower (`above`) or upper bound at which `one_sided_evidence` suffices, at all looks together.

    The evidence against every t below the bound (above it) suffices, and against no other t: where it
    exceeds 1 it falls in t up to the observed share and rises from there. So p lies beyond the bound
    of any look with probability at most `1 - confidence`.

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

    Guaranteed, at all looks together: if the probability is below `at_least`, the verdict is ever HOLDS
    with probability at most `1 - confidence`; if it is at least `at_least`, the same applies to
    VIOLATED, or with `violated_below` where it is at least that, and with `violated_confidence` at that
    confidence. A verdict is final, and `bound` is the bound that it was given for. The evidence is
    `one_sided_evidence` on either side.

    >>> test = BernoulliTest(0.9, confidence=0.95)
    >>> print(test.update(10, draws=10), test.update(90, draws=90))
    undecided holds
    """

    def __init__(
        self,
        at_least: float,
        confidence: float,
        violated_below: float | None = None,
        violated_confidence: float | None = None,
    ) -> None:
        if not 0 < at_least < 1:
            raise SpecError(f"`at_least` must lie in (0, 1), got {at_least}. Example: 0.9")
        self.at_least = at_least
        self.violated_below = at_least if violated_below is None else violated_below
        self.confidence = confidence
        self.violated_confidence = violated_confidence or confidence
        self.needed = math.log(1 / check_confidence(confidence)) + _MARGIN
        self.verdict = Verdict.UNDECIDED
        self.bound: float | None = None
        self.correct = 0
        self.draws = 0

    def update(self, successes: int, draws: int) -> Verdict:
        """Add `draws` further draws, of which `successes` succeeded; the verdict so far."""
        if not 0 <= successes <= draws:
            raise SpecError(f"`successes` must lie in 0 ... draws, got {successes} of {draws}.")
        self.correct += successes
        self.draws += draws
        if self.verdict is Verdict.UNDECIDED:
            counts = self.correct, self.draws - self.correct
            for above, edge, verdict, confidence in (
                (True, self.at_least, Verdict.HOLDS, self.confidence),
                (False, self.violated_below, Verdict.VIOLATED, self.violated_confidence),
            ):
                needed = math.log(1 / check_confidence(confidence)) + _MARGIN
                if edge > 0 and one_sided_evidence(*counts, edge, above=above) >= needed:
                    self.verdict = verdict
                    self.bound = one_sided_bound(*counts, confidence, above=above)
        return self.verdict

    def bounds(self) -> Interval:
        """Both bounds, with the one that decided: later draws take nothing from it."""
        counts = self.correct, self.draws - self.correct
        low = one_sided_bound(*counts, self.confidence, above=True)
        high = one_sided_bound(*counts, self.violated_confidence, above=False)
        if self.bound is None:
            return Interval(low, high)
        if self.verdict is Verdict.HOLDS:
            return Interval(max(low, self.bound), high)
        return Interval(low, min(high, self.bound))


class MeanTest:
    """Sequential test of "the mean is at least `at_least`" on independent numbers in [0, 1].

    Guaranteed, at all looks together, by betting (`nppr.statistics.betting`): each wrong verdict has
    probability at most `1 - confidence`, and so has each end of `bounds` of missing the mean. `aim` is
    the distance from the mean that the bets are made for. A verdict is final: what comes later is not
    looked at.

    >>> print(MeanTest(0.4, 0.95, aim=0.1).update(np.full(64, 0.5)))
    holds
    """

    def __init__(self, at_least: float, confidence: float, aim: float, seed: int = 0) -> None:
        self.error = check_confidence(confidence)
        self.aim, self.seed = aim, seed
        self.levels = {Verdict.HOLDS: at_least, Verdict.VIOLATED: 1 - at_least}
        self.capital = dict.fromkeys(self.levels, 0.0)
        self.placed: dict[Verdict, list[Bets]] = {verdict: [] for verdict in self.levels}
        self.seen: FloatArray = np.zeros(0)
        self.verdict = Verdict.UNDECIDED

    def update(self, x: FloatArray) -> Verdict:
        """Add numbers `(n,)`, whose number may depend on those before; the verdict so far."""
        if self.verdict is not Verdict.UNDECIDED or not len(x):
            return self.verdict
        require_shares(x)
        for verdict, level in self.levels.items():
            up = verdict is Verdict.HOLDS
            before, new = (self.seen, x) if up else (1 - self.seen, 1 - x)
            self.placed[verdict].append(aimed_bets(before, new, self.aim, self.seed))
            self.capital[verdict] += log_capital(*self.placed[verdict][-1], level)
            if self.capital[verdict] >= math.log(1 / self.error) + MARGIN:
                self.verdict = verdict
        self.seen = np.concatenate([self.seen, x])
        return self.verdict

    def bounds(self) -> Interval:
        """A lower and an upper bound of the mean."""
        low, high = (
            largest_excluded(self.placed[verdict], self.error)
            for verdict in (Verdict.HOLDS, Verdict.VIOLATED)
        )
        return Interval(low, 1 - high)
