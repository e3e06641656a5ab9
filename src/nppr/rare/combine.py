"""Plain draws and splitting together: a failure probability for every input of a tally.

Inputs that failed in some of their S draws keep the share of failures, with its binomial error. Inputs
that never failed have the estimate of splitting, with the error `p sqrt(exp(s^2) - 1)` for a standard
error s of log p. Errors of different inputs are independent, so that of the mean over n inputs is
`sqrt(sum error^2) / n`; it speaks about this test set.

The mean of a tally is unbiased without any help: its zeros make up for the failures it meets by luck.
Putting q_i for the zeros therefore lifts the expected mean by `mean_i q_i (1 - q_i)^S`, which is also
the expected contribution of splitting (`added`). So the single probabilities gain, above all those that
are below 1/S; the combined mean errs on the side of failures, by no more than what was added.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nppr.errors import SpecError
from nppr.rare.estimate import Rare
from nppr.types import BoolArray, FloatArray, Split, Tally

__all__ = ["Combined", "combined"]


@dataclass(frozen=True, eq=False)
class Combined:
    """Failure probabilities of all inputs of a tally `(N,)`, and their standard errors.

    `by_splitting` says which are estimates of splitting. An input that never failed and was not
    looked at by splitting counts as 0, without an error.
    """

    failures: FloatArray
    errors: FloatArray
    by_splitting: BoolArray

    def mean(self, among: BoolArray | None = None) -> float:
        """Mean failure probability of the inputs, or of those in `among`."""
        return float(self.failures[self._rows(among)].mean())

    def standard_error(self, among: BoolArray | None = None) -> float:
        """Standard error of the mean, of draws and runs, not of the choice of the inputs."""
        errors = self.errors[self._rows(among)]
        return float(np.sqrt(np.square(errors).sum()) / len(errors))

    def added(self, among: BoolArray | None = None) -> float:
        """What splitting adds to the mean: in expectation, the bias of the mean."""
        return float(np.where(self.by_splitting, self.failures, 0.0)[self._rows(among)].mean())

    def _rows(self, among: BoolArray | None) -> BoolArray:
        return np.ones(len(self.failures), bool) if among is None else among


def combined(tally: Tally[Split], rare: Rare) -> Combined:
    """The failure probability of every input of a tally, see the top of this file."""
    within = rare.positions.max() < len(tally.indices)
    if not within or not np.array_equal(tally.indices[rare.positions], rare.indices):
        raise SpecError("`rare` must be about inputs of the tally, got those of another part.")
    failures: FloatArray = 1.0 - tally.rates
    errors: FloatArray = np.sqrt(failures * (1 - failures) / max(tally.draws - 1, 1))
    by_splitting = np.zeros(len(failures), bool)
    never = tally.unbroken[rare.positions]
    rows = rare.positions[never]
    failures[rows] = rare.p[never]
    errors[rows] = rare.p[never] * np.sqrt(np.expm1(np.square(rare.spread[never])))
    by_splitting[rows] = True
    return Combined(failures, errors, by_splitting)
