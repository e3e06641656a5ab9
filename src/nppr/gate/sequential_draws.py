"""Draws in blocks, until every question about them is decided.

Questions look at the draws after each block, so their tests must be valid at any time. Inputs are used
in one of two ways:

the population   every input is used once, in a seeded order, until inputs run out: independent draws
this test set    inputs are drawn with replacement, each time with fresh noise: draws never run out

A question sees a block as a whole. The inputs of a whole block are independent; those that finish first
may not be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from nppr.core.random_draws import derive_seed
from nppr.core.tally import (
    BoolArray,
    Claim,
    Evaluate,
    FloatArray,
    IntArray,
    Metric,
    Progress,
    Tally,
)
from nppr.data import Slice, Split
from nppr.errors import SpecError
from nppr.measuring.measurement import measure
from nppr.models import PreparedClassifier
from nppr.report.gate_record import Decision
from nppr.sources import Clean, Source
from nppr.statistics.intervals import Interval
from nppr.statistics.noise_set_test import NoiseSetTest
from nppr.statistics.paired import from_unit, to_unit
from nppr.statistics.sequential import BernoulliTest, MeanTest, Verdict, one_sided_bound

AT_ONCE = 64
"""Inputs of a block."""

MORE_INPUTS = (
    'To decide it, provide more inputs, or set `about` to "test-set": inputs are then drawn again, and'
    " the verdict applies to this test set only."
)


@dataclass(frozen=True, eq=False)
class DrawnBlock:
    """The position of each input, its number of correct draws out of `draws`, and the calls made."""

    positions: IntArray
    correct: IntArray
    calls: int
    draws: int = 1

    def correct_in(self, rows: BoolArray | None) -> IntArray:
        """Return the correct draws of each input at a position where `rows` is true; None means all."""
        return self.correct if rows is None else self.correct[rows[self.positions]]


class Reading(NamedTuple):
    """The numbers behind a verdict."""

    value: float | None
    interval: Interval
    draws: int
    slices: tuple[Decision, ...] = ()


class Question(Protocol):
    """A question about the draws of a source, answered by a sequential test."""

    @property
    def verdict(self) -> Verdict:
        """The verdict so far. Once it is not UNDECIDED, it is final."""

    def update(self, block: DrawnBlock) -> None:
        """Add the draws of a block."""

    def read(self) -> Reading:
        """Return what was observed, its interval, and the draws behind it."""


@dataclass(frozen=True, eq=False)
class LevelQuestion:
    """Does the probability of a correct answer under a source, or a set of noise, reach a level?

    Only inputs at positions where `rows` is true count; None means all.
    """

    test: BernoulliTest | NoiseSetTest
    rows: BoolArray | None = None

    @property
    def verdict(self) -> Verdict:
        return self.test.verdict

    def update(self, block: DrawnBlock) -> None:
        correct = block.correct_in(self.rows)
        if isinstance(self.test, NoiseSetTest):
            self.test.update(block.draws - correct)
        else:
            self.test.update(int(correct.sum()), len(correct))

    def read(self) -> Reading:
        test = self.test
        value = test.value() if isinstance(test, NoiseSetTest) else _fraction(test)
        return Reading(value, test.bounds(), test.draws)


def _fraction(test: BernoulliTest) -> float | None:
    """Return the fraction of correct draws, None without a draw."""
    return test.correct / test.draws if test.draws else None


class WorstQuestion:
    """Does the probability of a correct answer reach a level in every slice?

    HOLDS needs every slice to pass at the full error: if the claim is false, it is false for some
    slice, and that slice's own test would have to err. VIOLATED needs one slice to fail at its share of
    the error (Bonferroni).
    """

    def __init__(self, at_least: float, error: float, slices: Sequence[Slice]) -> None:
        self.each_confidence = 1 - error / len(slices)
        self.parts = [
            (each, BernoulliTest(at_least, 1 - error, self.each_confidence)) for each in slices
        ]

    @property
    def verdict(self) -> Verdict:
        """VIOLATED if one slice is, HOLDS if all slices do."""
        found = {test.verdict for _, test in self.parts}
        if Verdict.VIOLATED in found:
            return Verdict.VIOLATED
        return Verdict.UNDECIDED if Verdict.UNDECIDED in found else Verdict.HOLDS

    def update(self, block: DrawnBlock) -> None:
        for each, test in self.parts:
            correct = block.correct_in(each.rows)
            test.update(int(correct.sum()), len(correct))

    def read(self) -> Reading:
        """Return the lowest fraction observed, its interval, and all slices, the lowest first.

        The intervals of all slices hold together.
        """
        rows = []
        for each, test in self.parts:
            counts = test.correct, test.draws - test.correct
            low, high = (
                one_sided_bound(*counts, self.each_confidence, above=above)
                for above in (True, False)
            )
            rows.append(
                Decision(
                    requirement=each.name,
                    verdict=test.verdict,
                    value=_fraction(test),
                    draws=test.draws,
                    low=low,
                    high=high,
                )
            )
        rows.sort(
            key=lambda row: (
                -1.0 if row.value is None else row.value,
                row.high or 0.0,
                row.requirement,
            )
        )
        ends = [test.bounds() for _, test in self.parts]
        return Reading(
            min((row.value for row in rows if row.value is not None), default=None),
            Interval(min(each.low for each in ends), min(each.high for each in ends)),
            sum(row.draws for row in rows),
            tuple(rows),
        )


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
        seen = self.test.seen
        mean = 2 * float(seen.mean()) - 1 if len(seen) else None
        return Reading(mean, from_unit(self.test.bounds()), len(seen) * self.draws)


@dataclass(frozen=True)
class Drawing:
    """The inputs and calls used, why drawing ended, and what to do if a question is undecided."""

    inputs: int
    calls: int
    why: str
    advice: str = ""


def draw_until_decided(
    source: Source,
    classifier: PreparedClassifier,
    split: Split[Evaluate],
    questions: Sequence[Question],
    *,
    about: Claim,
    calls: int,
    draws: int = 1,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> Drawing:
    """Draw until every question is decided, `calls` images are classified, or inputs run out.

    Only clean-correct inputs count, unless the source does not perturb its inputs.
    """
    if calls < 1:
        raise SpecError(f"`calls` must be a whole number >= 1, got {calls}.")
    inputs: set[int] = set()
    each_once = about is Claim.POPULATION
    used, drawn, correct = 0, 0, 0
    why = "every input was used once" if each_once else "no input is clean-correct"
    advice = MORE_INPUTS if each_once else ""
    for block in _blocks(source, classifier, split, about, draws, seed):
        used += block.calls
        drawn += len(block.positions) * block.draws
        correct += int(block.correct.sum())
        inputs.update(block.positions.tolist())
        for each in questions:
            each.update(block)
        if progress:
            progress(Progress(source.name, drawn, drawn + max(0, calls - used), correct))
        if all(each.verdict is not Verdict.UNDECIDED for each in questions):
            why, advice = "the evidence is sufficient", ""
            break
        if used >= calls:
            why, advice = f"{used:,} calls were used", "To decide it, raise `calls`."
            break
    return Drawing(len(inputs), used, why, advice)


def _blocks(
    source: Source,
    classifier: PreparedClassifier,
    split: Split[Evaluate],
    about: Claim,
    draws: int,
    seed: int,
) -> Iterator[DrawnBlock]:
    """Yield draws in blocks, from the seeded order of the inputs or with replacement."""

    def measure_at(each: Source, positions: IntArray, seed: int = 0) -> Tally[Evaluate]:
        """Measure a source on the inputs at these positions."""
        chosen = replace(split, indices=split.indices[positions], labels=split.labels[positions])
        ones = np.ones(len(positions), bool)
        return measure(each, classifier, chosen, draws=draws, seed=seed, clean_correct=ones)

    def find_clean_correct(positions: IntArray) -> tuple[IntArray, int]:
        """Return the positions of clean-correct inputs, and the calls it took to find them."""
        tally = measure_at(Clean(), positions)
        return positions[tally.correct == 1], tally.calls

    def draw(positions: IntArray, seed: int, spent: int) -> DrawnBlock:
        if not len(positions):
            return DrawnBlock(positions, positions, spent, draws)
        tally = measure_at(source, positions, seed)
        return DrawnBlock(positions, tally.correct, tally.calls + spent, tally.draws)

    random = np.random.default_rng(derive_seed(seed, "certify/order", 0, 0) & 0xFFFFFFFF)
    order = random.permutation(len(split))
    if about is Claim.POPULATION:
        clean = source.metric is Metric.ACCURACY
        for start in range(0, len(order), AT_ONCE):
            some = order[start : start + AT_ONCE]
            found, spent = (some, 0) if clean else find_clean_correct(some)
            yield draw(found, seed, spent)
        return
    known = np.full(len(split), -1)  # 1 clean-correct, 0 wrong, -1 not looked at yet
    number = 0
    while (known != 0).any():
        left = random.integers(len(split), size=AT_ONCE)
        new = np.unique(left[known[left] < 0])
        found, spent = find_clean_correct(new) if len(new) else (new, 0)
        known[new] = 0
        known[found] = 1
        left = left[known[left] == 1]
        parts = [DrawnBlock(left[:0], left[:0], spent, draws)]
        while len(left):  # an input that was drawn twice gets fresh draws each time
            chosen, first = np.unique(left, return_index=True)
            parts.append(
                draw(chosen, derive_seed(seed, "certify/draws", 0, number) & 0x7FFFFFFF, 0)
            )
            left = np.delete(left, first)
            number += 1
        yield DrawnBlock(
            np.concatenate([each.positions for each in parts]),
            np.concatenate([each.correct for each in parts]),
            sum(each.calls for each in parts),
            parts[-1].draws,
        )
