"""How often is a verdict of a gate of 6 requirements wrong, and how many draws does a gate take?

By simulation, with the questions and the split of the error that `nppr gate` uses, after every block
of 64 inputs, each with one draw, or 16 for a bound. At the boundary every value is the one asked for,
so that a true requirement and a false one cannot be told apart: *any* verdict of any of the six counts
as an error. Draws are compared with the smallest exact binomial test of fixed size at the same error.
For example:

    python benchmarks/gate_errors.py --gates 1000
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
from scipy import stats

from nppr.core.tally import IntArray
from nppr.data import Slice
from nppr.gate.sequential_draws import (
    AT_ONCE,
    DrawnBlock,
    LevelQuestion,
    PairedQuestion,
    Question,
    WorstQuestion,
)
from nppr.statistics.intervals import clopper_pearson
from nppr.statistics.noise_set_test import SET_DRAWS, NoiseSetTest
from nppr.statistics.noise_sets import ChiSquare, Contaminated
from nppr.statistics.sequential import BernoulliTest, MeanTest, Verdict

CONFIDENCE, REQUIREMENTS = 0.95, 6
ERROR = (1 - CONFIDENCE) / (2 * REQUIREMENTS)
LEVEL, WORST, LOSS = 0.9, 0.7, 0.02
CLASSES = 10
SET = Contaminated(1.0, 0.05, "tv")
CURVED, FRAGILE = ChiSquare(1.0), 0.01
POWER = 0.9
MOST = 20_000


class Boundary(NamedTuple):
    """A requirement that is exactly at its boundary, by what its draws are."""

    question: Question
    correct: float
    fragile: float = 0.0
    """The share of the inputs that always fail."""
    draws: int = 1


def questions(inputs: int) -> list[Boundary]:
    """The six requirements."""
    rows = np.arange(inputs) % CLASSES
    slices = [Slice("class", str(each), rows == each) for each in range(CLASSES)]
    p = SET.largest_p(LEVEL)
    assert p is not None
    paired = MeanTest((1 - LOSS) / 2, 1 - ERROR, LOSS / 2)
    everything = np.ones(inputs, bool)
    return [
        Boundary(LevelQuestion(BernoulliTest(LEVEL, 1 - ERROR)), LEVEL),
        Boundary(LevelQuestion(BernoulliTest(0.99, 1 - ERROR)), 0.99),
        Boundary(LevelQuestion(NoiseSetTest(SET, LEVEL, 1 - ERROR)), 1 - p, draws=SET_DRAWS),
        Boundary(
            LevelQuestion(NoiseSetTest(CURVED, 1 - FRAGILE, 1 - ERROR)), 1.0, FRAGILE, SET_DRAWS
        ),
        Boundary(WorstQuestion(WORST, ERROR, slices), WORST),
        Boundary(PairedQuestion(paired, np.full(inputs, 0.95), everything, 1), 0.95 - LOSS),
    ]


def run_gate(inputs: int, random: np.random.Generator) -> list[Verdict]:
    """The verdicts of one gate on that many inputs."""
    verdicts = []
    for question, probability, fragile, draws in questions(inputs):
        correct = random.binomial(draws, probability, inputs) * (random.random(inputs) >= fragile)
        for start in range(0, inputs, AT_ONCE):
            some = np.arange(start, min(inputs, start + AT_ONCE))
            question.update(DrawnBlock(some, correct[some], len(some), draws))
            if question.verdict is not Verdict.UNDECIDED:
                break
        verdicts.append(question.verdict)
    return verdicts


def at_the_boundary(gates: int, inputs: int, seed: int) -> None:
    """How often any requirement gets a verdict although nothing tells it apart."""
    random = np.random.default_rng(seed)
    wrong, each = 0, np.zeros(REQUIREMENTS, dtype=np.int64)
    for _ in range(gates):
        decided = [verdict is not Verdict.UNDECIDED for verdict in run_gate(inputs, random)]
        each += decided
        wrong += any(decided)
    low, high = clopper_pearson(np.array([wrong]), gates, 0.95)[:, 0]
    print(
        f"boundary, {inputs:,} inputs, {gates:,} gates: {wrong} with a wrong verdict,"
        f" {100 * wrong / gates:.1f} % ({100 * low:.1f}-{100 * high:.1f} %), stated at most 5 %;"
        f" by requirement {each.tolist()}"
    )


def fixed_size(limit: float, truth: float, error: float) -> int:
    """Draws of the smallest exact test of fixed size that shows `limit` at `truth` with the power."""
    n = np.arange(10, MOST)
    above = truth > limit
    edge = stats.binom.isf(error, n, limit) if above else stats.binom.ppf(error, n, limit) - 1
    power = stats.binom.sf(edge, n, truth) if above else stats.binom.cdf(edge, n, truth)
    enough: IntArray = np.flatnonzero(np.minimum.accumulate(np.asarray(power >= POWER)[::-1])[::-1])
    return int(n[enough[0]])


def draws_against_a_fixed_design(gates: int, seed: int) -> None:
    """Expected draws of one requirement by how far the truth is, and of a fixed design."""
    random = np.random.default_rng(seed)
    print(
        f"\nPR >= {LEVEL}, one of {REQUIREMENTS} requirements; fixed: exact binomial, power {POWER:.0%}"
    )
    print("truth   mean draws  median  90 %   fixed   decided")
    for truth in (0.99, 0.97, 0.95, 0.93, 0.87, 0.85, 0.8, 0.5):
        found = []
        for _ in range(gates):
            test = BernoulliTest(LEVEL, 1 - ERROR)
            while test.draws < MOST and test.verdict is Verdict.UNDECIDED:
                test.update(int(random.binomial(AT_ONCE, truth)), AT_ONCE)
            found.append((test.draws, test.verdict is not Verdict.UNDECIDED))
        draws = np.array([each for each, _ in found])
        fixed = fixed_size(LEVEL, truth, ERROR)
        decided = np.mean([each for _, each in found])
        print(
            f"{truth:5.2f} {draws.mean():12.0f} {np.median(draws):7.0f} {np.quantile(draws, 0.9):5.0f}"
            f" {fixed:7d} {decided:9.1%}"
        )


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gates", type=int, default=1000)
    parser.add_argument("--inputs", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    at_the_boundary(given.gates, given.inputs, given.seed)
    draws_against_a_fixed_design(given.gates, given.seed + 1)


if __name__ == "__main__":
    main()
