"""Does the interval that a run with `--precision` stops with contain the truth, and what does it take?

By simulation, 95 %: inputs with probabilities Beta(s m, s (1 - m)) of mean m, of which 16 draws are
seen; rounds are added until the interval is within the precision. Beside it, the `normal` interval of
the same inputs. Example:

    python benchmarks/precision.py --repeats 500
"""

from __future__ import annotations

import argparse

import numpy as np

from nppr.core.tally import Evaluate, FloatArray, IntArray, Tally
from nppr.run.precision import Round, RoundReview
from nppr.statistics import Interval, normal

DRAWS, MOST, CONFIDENCE = 16, 20_000, 0.95
KINDS = {"bimodal": 0.2, "clustered": 4.0}
CASES = ((0.5, 0.03), (0.9, 0.02), (0.98, 0.01), (0.99, 0.01), (0.995, 0.005), (0.999, 0.005))


def tally_of(correct: IntArray) -> Tally[Evaluate]:
    """Inputs that are all clean-correct."""
    n = len(correct)
    return Tally(
        kind=Evaluate,
        indices=np.arange(n),
        labels=np.zeros(n, np.int64),
        clean_correct=np.ones(n, bool),
        correct=correct,
        draws=DRAWS,
        calls=n * DRAWS,
        micro_batch=1,
    )


def stop(correct: IntArray, precision: float, seed: int) -> tuple[FloatArray, Interval]:
    """The rates of the inputs at which a run stops, and its interval."""
    rounds = [Round(256, DRAWS)]
    while True:
        sizes = [each.inputs for each in rounds]
        came_in = np.repeat(np.arange(len(rounds)), np.diff(sizes, prepend=0))
        look = RoundReview(tuple(rounds), came_in, precision, CONFIDENCE, seed)
        found = tally_of(correct[: sizes[-1]])
        need = look.judge({"a": found}, len(correct))
        if need.following is None:
            return found.rates, look.interval(found)
        rounds.append(need.following)


def main() -> None:
    """One line per kind of inputs, mean and precision."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=500)
    repeats = parser.parse_args().repeats
    rng = np.random.default_rng(0)
    print("inputs, mean, precision: coverage of the interval, of normal, inputs taken")
    for kind, spread in KINDS.items():
        for mean, precision in CASES:
            held, usual, sizes = [], [], []
            for seed in range(repeats):
                p = rng.beta(spread * mean, spread * (1 - mean), MOST)
                x, at = stop(rng.binomial(DRAWS, p), precision, seed)
                plain = normal(x, CONFIDENCE)
                held.append(at.low <= mean <= at.high)
                usual.append(plain.low <= mean <= plain.high)
                sizes.append(len(x))
            print(
                f"{kind:9s}  {mean:5g}  {precision:5g}  {100 * np.mean(held):6.1f} %"
                f"  {100 * np.mean(usual):6.1f} %  {np.mean(sizes):8,.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
