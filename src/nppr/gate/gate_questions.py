"""The questions of a gate about draws: a level, the worst slice, the difference from a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from nppr.core.tally import BoolArray, FloatArray
from nppr.data import Slice
from nppr.gate.sequential_draws import CountQuestion, DrawnBlock, Question, SetQuestion
from nppr.report.gate_record import SliceDecision
from nppr.statistics.intervals import Interval
from nppr.statistics.paired import from_unit, to_unit
from nppr.statistics.sequential import BernoulliTest, MeanTest, Verdict, one_sided_bound


class Reading(NamedTuple):
    """The numbers behind a verdict."""

    value: float | None
    interval: Interval
    draws: int
    slices: tuple[SliceDecision, ...] = ()


class GateQuestion(Question, Protocol):
    """A question whose numbers can be read off."""

    def read(self) -> Reading:
        """What was observed, its interval, and the draws behind it."""


@dataclass(frozen=True, eq=False)
class LevelQuestion(CountQuestion):
    """Is the probability of a correct answer under a source at least so much?"""

    def read(self) -> Reading:
        """The fraction of correct draws and the interval."""
        test = self.test
        return Reading(test.correct / test.draws if test.draws else None, test.bounds(), test.draws)


@dataclass(frozen=True, eq=False)
class BoundQuestion(SetQuestion):
    """Does the worst noise of a set leave at least so much correct?"""

    def read(self) -> Reading:
        """Return what the worst noise leaves at the observed fractions, and the interval."""
        return Reading(self.test.value(), self.test.bounds(), self.test.draws)


class WorstQuestion:
    """Is the probability of a correct answer at least so much in every slice?

    HOLDS where it is shown for each slice, for which no error has to be divided: if it is false, it is
    false for one slice, whose own test is wrong with the stated error only. VIOLATED where it is shown
    for one slice, each with a share of the error (Bonferroni).
    """

    def __init__(self, at_least: float, error: float, slices: Sequence[Slice]) -> None:
        self.error = error
        self.slices = slices
        self.parts = [
            CountQuestion(BernoulliTest(at_least, 1 - error, 1 - error / len(slices)), each.rows)
            for each in slices
        ]

    @property
    def verdict(self) -> Verdict:
        """Violated by one, else holds for all."""
        found = {part.verdict for part in self.parts}
        if Verdict.VIOLATED in found:
            return Verdict.VIOLATED
        return Verdict.UNDECIDED if Verdict.UNDECIDED in found else Verdict.HOLDS

    def update(self, block: DrawnBlock) -> None:
        """Each slice sees its own inputs."""
        for part in self.parts:
            part.update(block)

    def read(self) -> Reading:
        """The lowest fraction observed, the interval of the lowest probability, and all slices."""
        tests = [part.test for part in self.parts]
        ends = [test.bounds() for test in tests]
        rows = [
            SliceDecision(
                name=each.name,
                verdict=test.verdict,
                value=test.correct / test.draws if test.draws else None,
                draws=test.draws,
                **self._simultaneous(test),
            )
            for each, test in zip(self.slices, tests, strict=True)
        ]
        rows.sort(key=lambda row: (-1.0 if row.value is None else row.value, row.high, row.name))
        observed = [row.value for row in rows if row.value is not None]
        return Reading(
            min(observed, default=None),
            Interval(min(each.low for each in ends), min(each.high for each in ends)),
            sum(test.draws for test in tests),
            tuple(rows),
        )

    def _simultaneous(self, test: BernoulliTest) -> dict[str, float]:
        sure = 1 - self.error / len(self.parts)
        counts = test.correct, test.draws - test.correct
        return {
            name: one_sided_bound(*counts, sure, above=above)
            for name, above in (("low", True), ("high", False))
        }


@dataclass(frozen=True, eq=False)
class PairedQuestion:
    """Is the mean difference from a baseline at least so much, on inputs that count for both?

    `rates` and `counts` are those of the baseline, by position in the split; each input has `draws`.
    Differences in [-1, 1] are tested as numbers in [0, 1].
    """

    test: MeanTest
    rates: FloatArray
    counts: BoolArray
    draws: int

    @property
    def verdict(self) -> Verdict:
        return self.test.verdict

    def update(self, block: DrawnBlock) -> None:
        """One difference for each input."""
        kept = self.counts[block.positions]
        rates = block.correct[kept] / self.draws
        self.test.update(to_unit(rates, self.rates[block.positions[kept]]))

    def read(self) -> Reading:
        """The mean difference and its interval."""
        seen = self.test.seen
        mean = 2 * float(seen.mean()) - 1 if len(seen) else None
        return Reading(mean, from_unit(self.test.bounds()), len(seen) * self.draws)
