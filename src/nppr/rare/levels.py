"""The levels of one run of multilevel splitting: bookkeeping in log space, no classifier.

With levels L_1 < L_2 < ... < 0 the probability of a failure is a product of shares that are not small,

    P(m >= 0) = P(m > L_1) P(m > L_2 | m > L_1) ... P(m >= 0 | m > L_k),

and each level is chosen such that about 1 in MOVES points of the population lie above it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from nppr.types import FloatArray, IntArray

__all__ = ["MOVES", "Levels", "Status"]

MOVES = 5
"""Moves of a chain in one level: the best 1/MOVES of a population start the chains of the next one.

For 4 to 10 moves `var(log p) * calls` is nearly the same, about 1000 at p = 1e-6 (linear classifiers,
1 to 64 pixels); fewer moves start more chains.
"""

NONE: IntArray = np.empty(0, dtype=np.int64)


class Status(StrEnum):
    """How a search for failures ended.

    With BELOW and OUT_OF_CALLS no level of failures was reached: p is then the probability of the
    last level reached, so the probability of a failure is at most about p.
    """

    FOUND = "found"
    BELOW = "below"
    OUT_OF_CALLS = "out of calls"


@dataclass
class Levels:
    """Where a run stands: `log_p` is the logarithm of P(m > level).

    `floor` is the log p at which it gives up, `limit` the calls it may make. `variance` is that of
    log p if all points were independent, `sum (1 - share) / (share N)`: the true one is larger.
    """

    floor: float
    limit: int
    level: float = -math.inf
    log_p: float = 0.0
    variance: float = 0.0
    calls: int = 0
    passed: int = 0
    status: Status | None = None
    _counted: int = 0

    def settle(self, margins: FloatArray) -> IntArray:
        """Count a population `(N,)` with margins > level; the places of those above the next level.

        None are left once `status` says how the run ended. Survivors lie strictly above the next
        level, so ties never count as progress: where the best are tied, they survive together. If
        all are tied there is no next level yet: all survive, and points are counted until one differs.
        If none does, the last share is taken as one in those counted.
        """
        self.calls += len(margins)
        self._counted += len(margins)
        keep = len(margins) // MOVES
        failing = int((margins >= 0).sum())
        spent = self.calls + keep * MOVES > self.limit
        if failing >= keep or (failing and spent):
            self._pass(0.0, failing)
            self.status = Status.FOUND
            return NONE
        following = _next_level(margins, keep)
        if following is None:
            survivors = np.arange(len(margins))
            reached = self.log_p - math.log(self._counted)
        else:
            survivors = np.flatnonzero(margins > following)
            self._pass(following, len(survivors))
            reached = self.log_p
        if reached >= self.floor and not spent:
            return survivors
        self.status = Status.BELOW if reached < self.floor else Status.OUT_OF_CALLS
        self.log_p = reached
        return NONE

    def _pass(self, level: float, above: int) -> None:
        share = above / self._counted
        self.log_p += math.log(share)
        self.variance += (1 - share) / above
        self.level = level
        self.passed += 1
        self._counted = 0


def _next_level(margins: FloatArray, keep: int) -> float | None:
    """The largest level above which at most `keep` lie, or all the best if they are tied."""
    ordered = np.sort(margins)[::-1]
    level = ordered[keep]
    if level < ordered[0]:
        return float(level)
    lower = ordered[ordered < ordered[0]]
    return float(lower[0]) if len(lower) else None
