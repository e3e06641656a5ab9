"""An anytime-valid test of the share that the worst noise of a set leaves correct.

An input that fails with probability p under the reference is classified correctly with probability
at least `1 - h(p)` under all noise of the set. The test is about the mean of this infimum over
inputs. To test h of the *mean* p instead would leave true statements undecided for ever: if 1 % of
the inputs always fail, `1 - h(0.01)` is far below 0.99.

Every input gets several draws, of which k fail. Two functions of k enclose the infimum:

from below   a score whose expectation is at most `1 - h(p)` (`lower_bounds.tuned_scores`)
from above   `1 - h(k / draws)`, whose expectation is at least `1 - h(p)`, as h is concave (Jensen)

The verdict is HOLDS if bets on the mean of the first succeed, and VIOLATED if bets on the mean of
the second succeed. The scores of a round are tuned on earlier rounds, never on the inputs they are
used for.
"""

from __future__ import annotations

import numpy as np

from nppr.core.tally import FloatArray, IntArray
from nppr.errors import SpecError
from nppr.statistics.intervals import Interval, check_confidence
from nppr.statistics.lower_bounds import tuned_scores
from nppr.statistics.noise_sets import NoiseSet
from nppr.statistics.sequential import Verdict, Wager, combine_wagers

SET_DRAWS = 16
"""Draws of each input: one block."""

_PRINTED = 0.05
"""Aim of half of the bets, which serve the printed bounds of undecided tests."""

_LEAST_FAILURE = 1e-9
"""Draws cannot show a smaller failure probability."""


class NoiseSetTest:
    """Sequential test of "the worst noise of a set leaves at least `at_least` correct".

    Guaranteed, at all looks together, for inputs that are drawn independently: each wrong verdict
    has probability at most `1 - confidence`, and each end of `bounds` misses with at most that
    probability. The worst noise may see the input. A verdict is final: later inputs are ignored.

    >>> from nppr.statistics.noise_sets import ChiSquare
    >>> test = NoiseSetTest(ChiSquare(0.1), 0.8, confidence=0.95)
    >>> print(test.update(np.zeros(64, dtype=np.int64)))
    holds
    """

    def __init__(
        self,
        noise: NoiseSet,
        at_least: float,
        confidence: float,
        seed: int = 0,
        draws_each: int = SET_DRAWS,
    ) -> None:
        self.noise = noise
        self.draws_each = draws_each
        best = require_reachable(noise, at_least)
        error = check_confidence(confidence)
        worst = noise.h(np.arange(draws_each + 1) / draws_each)
        self.losses = np.clip((worst - (1 - best)) / best, 0, 1)
        """Share of the breakable probability that the worst noise breaks, by the failures of an input.
        """
        self.best = best
        self.above = Wager(at_least, error, seed)
        self.below = Wager(1 - at_least / best, error, seed)
        self.wrong: IntArray = np.zeros(0, np.int64)
        self.verdict = Verdict.UNDECIDED

    @property
    def draws(self) -> int:
        """Number of draws so far."""
        return len(self.wrong) * self.draws_each

    @property
    def correct(self) -> int:
        """Number of correct draws."""
        return self.draws - int(self.wrong.sum())

    def update(self, wrong: IntArray) -> Verdict:
        """Add inputs with these numbers of failures `(n,)`; return the verdict so far."""
        if self.verdict is not Verdict.UNDECIDED or not len(wrong):
            return self.verdict
        if wrong.min() < 0 or wrong.max() > self.draws_each:
            raise SpecError(
                f"`wrong` must lie in 0 ... {self.draws_each}, got {wrong.min()} to {wrong.max()}."
            )
        counts = np.bincount(self.wrong, minlength=self.draws_each + 1)
        scores = tuned_scores(self.draws_each, self.noise, counts.astype(np.float64))
        self._bet(self.above, scores, wrong, min(0.0, float(scores.min())), self.best)
        self._bet(self.below, self.losses, wrong, 0.0, 1.0)
        self.wrong = np.concatenate([self.wrong, wrong])
        self.verdict = combine_wagers(self.above, self.below)
        return self.verdict

    def _bet(
        self, wager: Wager, values: FloatArray, wrong: IntArray, least: float, most: float
    ) -> None:
        """Place half of the bets for the level's distance from the mean, half for the printed bound."""
        before = values[self.wrong]
        mean = float(before.mean()) if len(before) else (wager.level + most) / 2
        aim = max(0.0, mean - wager.level) / (most - least)
        wager.bet(before, values[wrong], (aim, _PRINTED), least, most)

    def value(self) -> float | None:
        """Estimate the infimum with the observed fractions as p; it is too high on average."""
        if not len(self.wrong):
            return None
        return self.best * (1 - float(self.losses[self.wrong].mean()))

    def bounds(self) -> Interval:
        """Return a lower and an upper bound of the share that the worst noise leaves correct."""
        return Interval(self.above.bound(), self.best * (1 - self.below.bound()))


def require_reachable(noise: NoiseSet, at_least: float) -> float:
    """Return the share left correct if the reference never fails; raise if `at_least` exceeds it."""
    if not 0 < at_least < 1:
        raise SpecError(f"`at_least` must lie in (0, 1), got {at_least}. Example: 0.9")
    best = 1 - float(noise.h(np.zeros(())))
    p = noise.largest_p(at_least)
    if p is None or p < _LEAST_FAILURE:
        raise SpecError(
            f"`at-least` must be below {best:g} for noise {noise.words()}, got {at_least:g}: it cannot"
            " be shown even where the source never fails. Give a smaller set or a lower value."
        )
    return best
