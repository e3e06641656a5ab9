"""How often is a verdict of a gate of 5 requirements wrong, and how many draws does a gate take?

By simulation, with the questions and the split of the error that `nppr gate` uses, after every block
of 64 inputs, each input with one draw. At the boundary every probability is the value asked for, so
that a true requirement and a false one cannot be told apart: *any* verdict of any of the five counts
as an error. Draws are compared with the smallest exact binomial test of fixed size at the same error.
For example:

    python benchmarks/gate_errors.py --gates 1000
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from scipy import stats

from nppr.assessment.gate_questions import (
    GateQuestion,
    LevelQuestion,
    PairedQuestion,
    WorstQuestion,
)
from nppr.assessment.sequential_draws import AT_ONCE, DrawnBlock
from nppr.data import Slice
from nppr.noise_sets import Contaminated
from nppr.statistics.intervals import clopper_pearson
from nppr.statistics.sequential import BernoulliTest, MeanTest, Verdict
from nppr.tally import FloatArray, IntArray

CONFIDENCE, REQUIREMENTS = 0.95, 5
ERROR = (1 - CONFIDENCE) / (2 * REQUIREMENTS)
LEVEL, WORST, LOSS = 0.9, 0.7, 0.02
CLASSES = 10
SET = Contaminated(1.0, 0.05, "tv")
POWER = 0.9
MOST = 20_000


def questions(inputs: int) -> list[tuple[GateQuestion, float]]:
    """The five requirements, and the probability of a correct answer at the boundary of each."""
    rows = np.arange(inputs) % CLASSES
    slices = [Slice("class", str(each), rows == each) for each in range(CLASSES)]
    p = SET.largest_p(LEVEL)
    assert p is not None
    violated = LEVEL / (1 - float(SET.h(np.zeros(()))))
    paired = MeanTest((1 - LOSS) / 2, 1 - ERROR, LOSS / 2)
    everything = np.ones(inputs, bool)
    return [
        (LevelQuestion(BernoulliTest(LEVEL, 1 - ERROR)), LEVEL),
        (LevelQuestion(BernoulliTest(0.99, 1 - ERROR)), 0.99),
        (LevelQuestion(BernoulliTest(1 - p, 1 - ERROR, violated), noise=SET), 1 - p),
        (WorstQuestion(WORST, ERROR, slices), WORST),
        (PairedQuestion(paired, np.full(inputs, 0.95), everything, 1), 0.95 - LOSS),
    ]


def run_gate(
    inputs: int, probabilities: Sequence[float | FloatArray], random: np.random.Generator
) -> tuple[list[Verdict], list[int]]:
    """The verdicts of one gate on that many inputs, and the draws of each requirement."""
    verdicts, draws = [], []
    for (question, _), probability in zip(questions(inputs), probabilities, strict=True):
        correct = (random.random(inputs) < probability).astype(np.int64)
        for start in range(0, inputs, AT_ONCE):
            some = np.arange(start, min(inputs, start + AT_ONCE))
            question.update(DrawnBlock(some, correct[some], len(some)))
            if question.verdict is not Verdict.UNDECIDED:
                break
        verdicts.append(question.verdict)
        draws.append(int(some[-1]) + 1)
    return verdicts, draws


def at_the_boundary(gates: int, inputs: int, seed: int) -> None:
    """How often any requirement gets a verdict although nothing tells it apart."""
    random = np.random.default_rng(seed)
    limits = [limit for _, limit in questions(AT_ONCE)]
    wrong, each = 0, np.zeros(REQUIREMENTS, dtype=np.int64)
    for _ in range(gates):
        decided = [
            verdict is not Verdict.UNDECIDED for verdict in run_gate(inputs, limits, random)[0]
        ]
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
    print(f"\nPR >= {LEVEL} as one of 5 requirements; fixed: exact binomial, power {POWER:.0%}")
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
