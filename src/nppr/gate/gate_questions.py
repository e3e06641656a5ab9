"""What draws can decide: a level, a bound, the worst slice, the difference from a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from nppr.core.tally import BoolArray, FloatArray, IntArray
from nppr.data import Slice
from nppr.gate.sequential_draws import DrawnBlock, Question
from nppr.report.gate_record import Decision
from nppr.statistics.intervals import Interval
from nppr.statistics.noise_set_test import NoiseSetTest
from nppr.statistics.paired import from_unit, to_unit
from nppr.statistics.sequential import BernoulliTest, MeanTest, Verdict, one_sided_bound


class Reading(NamedTuple):
    """The numbers behind a verdict."""

    value: float | None
    interval: Interval
    draws: int
    slices: tuple[Decision, ...] = ()


class GateQuestion(Question, Protocol):
    """A question whose numbers can be read at any time."""

    def read(self) -> Reading:
        """Return what was observed, its interval, and the draws behind it."""


def _correct_in(block: DrawnBlock, rows: BoolArray | None) -> IntArray:
    """Return the correct draws of each input at a position where `rows` is true."""
    return block.correct if rows is None else block.correct[rows[block.positions]]


@dataclass(frozen=True, eq=False)
class LevelQuestion:
    """Does the probability of a correct answer under a source reach a level?

    Only inputs at positions where `rows` is true count; None means all.
    """

    test: BernoulliTest
    rows: BoolArray | None = None

    @property
    def verdict(self) -> Verdict:
        return self.test.verdict

    def update(self, block: DrawnBlock) -> None:
        """Add one draw of every input."""
        correct = _correct_in(block, self.rows)
        self.test.update(int(correct.sum()), len(correct))

    def read(self) -> Reading:
        """Return the fraction of correct draws and its interval."""
        test = self.test
        return Reading(test.correct / test.draws if test.draws else None, test.bounds(), test.draws)


@dataclass(frozen=True, eq=False)
class BoundQuestion:
    """Does the share of correct answers under the worst noise of a set reach a level?

    Only inputs at positions where `rows` is true count; None means all.
    """

    test: NoiseSetTest
    rows: BoolArray | None = None

    @property
    def verdict(self) -> Verdict:
        return self.test.verdict

    def update(self, block: DrawnBlock) -> None:
        """Add all draws of every input."""
        self.test.update(block.draws - _correct_in(block, self.rows))

    def read(self) -> Reading:
        """Return what the worst noise leaves at the observed fractions, and its interval."""
        return Reading(self.test.value(), self.test.bounds(), self.test.draws)


class WorstQuestion:
    """Does the probability of a correct answer reach a level in every slice?

    HOLDS needs every slice to pass at the full error: if the claim is false, it is false for some
    slice, and that slice's own test would have to err. VIOLATED needs one slice to fail at its share of
    the error (Bonferroni).
    """

    def __init__(self, at_least: float, error: float, slices: Sequence[Slice]) -> None:
        self.error = error
        self.slices = slices
        self.parts = [
            LevelQuestion(BernoulliTest(at_least, 1 - error, 1 - error / len(slices)), each.rows)
            for each in slices
        ]

    @property
    def verdict(self) -> Verdict:
        """VIOLATED if one slice is, HOLDS if all slices do."""
        found = {part.verdict for part in self.parts}
        if Verdict.VIOLATED in found:
            return Verdict.VIOLATED
        return Verdict.UNDECIDED if Verdict.UNDECIDED in found else Verdict.HOLDS

    def update(self, block: DrawnBlock) -> None:
        """Add the draws of a block to the slices of their inputs."""
        for part in self.parts:
            part.update(block)

    def read(self) -> Reading:
        """Return the lowest fraction observed, its interval, and all slices, the lowest first."""
        tests = [part.test for part in self.parts]
        ends = [test.bounds() for test in tests]
        rows = [
            Decision(
                requirement=each.name,
                verdict=test.verdict,
                value=test.correct / test.draws if test.draws else None,
                draws=test.draws,
                low=self._bound(test, above=True),
                high=self._bound(test, above=False),
            )
            for each, test in zip(self.slices, tests, strict=True)
        ]
        rows.sort(
            key=lambda row: (
                -1.0 if row.value is None else row.value,
                row.high or 0.0,
                row.requirement,
            )
        )
        observed = [row.value for row in rows if row.value is not None]
        return Reading(
            min(observed, default=None),
            Interval(min(each.low for each in ends), min(each.high for each in ends)),
            sum(test.draws for test in tests),
            tuple(rows),
        )

    def _bound(self, test: BernoulliTest, *, above: bool) -> float:
        """Return an end of the interval of one slice; the intervals of all slices hold together."""
        confidence = 1 - self.error / len(self.parts)
        return one_sided_bound(test.correct, test.draws - test.correct, confidence, above=above)


@dataclass(frozen=True, eq=False)
class PairedQuestion:
    """Does the mean difference from a baseline exceed a loss, on inputs that count for both?

    `rates` and `counts` hold the baseline's rate of each input and whether it counts, by position in
    the split. Each input gets `draws` draws. Differences in [-1, 1] are mapped to [0, 1], and their
    mean is tested.
    """

    test: MeanTest
    rates: FloatArray
    counts: BoolArray
    draws: int

    @property
    def verdict(self) -> Verdict:
        return self.test.verdict

    def update(self, block: DrawnBlock) -> None:
        """Add one difference for each input."""
        kept = self.counts[block.positions]
        rates = block.correct[kept] / self.draws
        self.test.update(to_unit(rates, self.rates[block.positions[kept]]))

    def read(self) -> Reading:
        """Return the mean difference and its interval."""
        seen = self.test.seen
        mean = 2 * float(seen.mean()) - 1 if len(seen) else None
        return Reading(mean, from_unit(self.test.bounds()), len(seen) * self.draws)
