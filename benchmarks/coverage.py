"""How often does each interval hold the truth, how wide is it, and how soon do sequential tests decide?

By simulation, 95 % everywhere. Inputs are clustered or bimodal: each has its own probability, of which
16 draws are seen. Prints tables and saves them as JSON. Example:

    python benchmarks/coverage.py --out coverage.json
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from nppr.core.tally import BoolArray, FloatArray, IntArray
from nppr.statistics.betting import betting, betting_lower
from nppr.statistics.intervals import (
    Interval,
    bootstrap,
    clopper_pearson,
    clopper_pearson_upper,
    empirical_bernstein,
    hoeffding,
    normal,
    wilson,
)
from nppr.statistics.lower_bounds import bound_pooled_failures, lower_population, lower_test_set
from nppr.statistics.noise_sets import Contaminated
from nppr.statistics.paired import paired_difference
from nppr.statistics.sequential import mixture_sequence, one_sided_evidence

CONFIDENCE = 0.95
INPUTS, DRAWS = 400, 16
MEANS = (0.005, 0.1, 0.3, 0.5, 0.7, 0.9, 0.995)
KINDS = {"bimodal": 0.2, "clustered": 4.0}
"""Beta(s m, s (1 - m)) for mean m: s = 0.2 is Beta(0.1, 0.1) at m = 0.5."""

LOOKS, EVERY = 200, 20
Row = dict[str, Any]
Method = Callable[[FloatArray, int], Interval]

OVER_INPUTS: dict[str, Method] = {
    "normal": lambda x, _: normal(x, CONFIDENCE),
    "bootstrap": lambda x, seed: bootstrap(x, CONFIDENCE, seed),
    "empirical-bernstein": lambda x, _: empirical_bernstein(x, CONFIDENCE),
    "betting": lambda x, seed: betting(x, CONFIDENCE, seed),
}


def probabilities(
    rng: np.random.Generator, mean: float, spread: float, shape: tuple[int, ...]
) -> FloatArray:
    """Probabilities of inputs, with this mean."""
    return rng.beta(spread * mean, spread * (1 - mean), shape)


def row(table: str, method: str, case: str, held: BoolArray, width: float) -> Row:
    """One line of a table, with the standard error of the coverage."""
    share = float(held.mean())
    error = math.sqrt(share * (1 - share) / held.size)
    return {
        "table": table,
        "method": method,
        "case": case,
        "coverage": share,
        "standard_error": error,
        "width": width,
        "repeats": held.size,
    }


def over_inputs(rng: np.random.Generator, repeats: int) -> list[Row]:
    """Mean of the population from 400 inputs, and that of these inputs by Hoeffding's bound."""
    rows = []
    for kind, spread in KINDS.items():
        for mean in MEANS:
            p = probabilities(rng, mean, spread, (repeats, INPUTS))
            x = rng.binomial(DRAWS, p) / DRAWS
            case = f"{kind} {mean}"
            for name, method in OVER_INPUTS.items():
                found = [method(each, seed) for seed, each in enumerate(x)]
                ends = np.array([(at.low, at.high) for at in found]).T
                held = (ends[0] <= mean) & (mean <= ends[1])
                rows.append(row("population", name, case, held, float((ends[1] - ends[0]).mean())))
            here = [hoeffding(float(each.mean()), INPUTS * DRAWS, CONFIDENCE) for each in x]
            ends = np.array([(at.low, at.high) for at in here]).T
            held = (ends[0] <= p.mean(1)) & (p.mean(1) <= ends[1])
            rows.append(row("test set", "hoeffding", case, held, float((ends[1] - ends[0]).mean())))
    return rows


def of_counts(rng: np.random.Generator, repeats: int) -> list[Row]:
    """Success probability of one input from 400 draws."""
    rows = []
    for p in MEANS:
        correct = rng.binomial(INPUTS, p, repeats)
        for name, method in {"clopper-pearson": clopper_pearson, "wilson": wilson}.items():
            low, high = method(correct, INPUTS, CONFIDENCE)
            held = (low <= p) & (p <= high)
            rows.append(row("one input", name, str(p), held, float((high - low).mean())))
        high = clopper_pearson_upper(correct, INPUTS, CONFIDENCE)
        distance = float((high - p).mean())
        rows.append(row("one input", "clopper-pearson-upper", str(p), p <= high, distance))
    return rows


def at_least(rng: np.random.Generator, repeats: int) -> list[Row]:
    """Bounds for failure, and for `max(0, 1 - c p)`: widths are mean distances from the truth."""
    rows = []
    for mean in (0.005, 0.1, 0.5):
        sample = probabilities(rng, mean, KINDS["bimodal"], (2_000_000,))
        p = probabilities(rng, mean, KINDS["bimodal"], (repeats, INPUTS))
        wrong = rng.binomial(DRAWS, p)
        high = np.array([bound_pooled_failures(each, DRAWS, CONFIDENCE) for each in wrong])
        case, gap = f"failure {mean}", float((high - p.mean(1)).mean())
        rows.append(row("at least", "pooled-upper", case, high >= p.mean(1), gap))
        for c in (2.0, 10.0):
            case = f"failure {mean}, c = {c:g}"
            truth = np.maximum(0, 1 - c * p).mean(1)
            low = np.array(
                [
                    lower_test_set(k, DRAWS, Contaminated(c), CONFIDENCE, s)
                    for s, k in enumerate(wrong)
                ]
            )
            gap = float((truth - low).mean())
            rows.append(row("at least", "lower-mean-clipped", case, low <= truth, gap))
            aim = float(np.maximum(0, 1 - c * sample).mean())
            low = np.array(
                [
                    lower_population(k, DRAWS, Contaminated(c), CONFIDENCE, s)
                    for s, k in enumerate(wrong)
                ]
            )
            gap = float((aim - low).mean())
            rows.append(row("at least", "lower-population", case, low <= aim, gap))
            linear = [
                1 - c * (1 - betting_lower(1 - k / DRAWS, CONFIDENCE, s))
                for s, k in enumerate(wrong)
            ]
            low = np.maximum(0, np.array(linear))
            gap = float((aim - low).mean())
            rows.append(row("at least", "1 - c U (population)", case, low <= aim, gap))
    return rows


def of_differences(rng: np.random.Generator, repeats: int) -> list[Row]:
    """Two sources on the same bimodal inputs, 0.05 apart."""
    p = np.minimum(probabilities(rng, 0.5, KINDS["bimodal"], (repeats, INPUTS)), 0.95)
    a, b = rng.binomial(DRAWS, p + 0.05) / DRAWS, rng.binomial(DRAWS, p) / DRAWS
    found = [
        paired_difference(*pair, CONFIDENCE, s) for s, pair in enumerate(zip(a, b, strict=True))
    ]
    rows = []
    for name in ("normal", "bootstrap", "betting"):
        ends = np.array([(getattr(at, name).low, getattr(at, name).high) for at in found]).T
        held = (ends[0] <= 0.05) & (ends[1] >= 0.05)
        rows.append(row("paired", name, "0.05 apart", held, float((ends[1] - ends[0]).mean())))
    return rows


def at_any_look(rng: np.random.Generator, repeats: int) -> list[Row]:
    """Share of runs that hold the truth at all of 200 looks, one every 20; width at the last."""
    rows = []
    draws = EVERY * np.arange(1, LOOKS + 1)
    for p in (0.01, 0.1, 0.5, 0.9, 0.99):
        correct = np.cumsum(rng.binomial(EVERY, p, (repeats, LOOKS)), axis=1)
        for name, method in {
            "mixture": mixture_sequence,
            "clopper-pearson": clopper_pearson,
        }.items():
            low, high = method(correct, draws, CONFIDENCE)
            held = ((low <= p) & (p <= high)).all(1)
            rows.append(row("any look", name, str(p), held, float((high - low)[:, -1].mean())))
    for mean in (0.1, 0.5, 0.9):
        x = rng.binomial(
            DRAWS, probabilities(rng, mean, KINDS["bimodal"], (repeats, LOOKS * EVERY))
        )
        cumulative = np.cumsum(x / DRAWS, axis=1)[:, draws - 1] / draws
        squares = np.cumsum((x / DRAWS) ** 2, axis=1)[:, draws - 1] / draws
        half = stats.norm.isf(0.025) * np.sqrt((squares - cumulative**2) / draws)
        held = (np.abs(cumulative - mean) <= half).all(1)
        width = float(2 * half[:, -1].mean())
        rows.append(row("any look", "normal", f"bimodal {mean}", np.asarray(held), width))
    return rows


def false_verdicts(rng: np.random.Generator, repeats: int) -> list[Row]:
    """Share of runs without a false verdict at any look, the truth at the limit or 0.001 off."""
    rows = []
    draws = EVERY * np.arange(1, LOOKS + 1)
    needed = math.log(1 / (1 - CONFIDENCE))
    for limit in (0.5, 0.9, 0.99):
        for truth, above in ((limit - 0.001, True), (limit, False)):
            correct = np.cumsum(rng.binomial(EVERY, truth, (repeats, LOOKS)), axis=1)
            wrongly = (one_sided_evidence(correct, draws - correct, limit, above) >= needed).any(1)
            case = f"false {'holds' if above else 'violated'} at {limit}"
            rows.append(row("verdicts", "bernoulli-test", case, np.asarray(~wrongly), math.nan))
    return rows


def draws_needed(rng: np.random.Generator, repeats: int) -> list[Row]:
    """Draws until a verdict, beside PRoA's adaptive Hoeffding test and an exact test of fixed size."""
    rows = []
    for limit, p, most in (
        (0.9, 0.99, 1500),
        (0.9, 0.95, 4000),
        (0.9, 0.8, 1500),
        (0.5, 0.6, 4000),
    ):
        correct: IntArray = np.cumsum(rng.random((repeats, most)) < p, axis=1)
        draws = np.arange(1, most + 1)
        level = 0.6 * np.log(np.log(draws) / math.log(1.1) + 1) + math.log(24 / 0.05) / 1.8
        proa = _first(np.abs(correct / draws - limit) > np.sqrt(level / draws))
        early = draws[: most // 2]
        seen = correct[:, : most // 2]
        ours = _first(one_sided_evidence(seen, early - seen, limit, p > limit) >= math.log(20))
        rows.append(
            {
                "limit": limit,
                "truth": p,
                "ours_median": float(np.median(ours)),
                "ours_90_percent": float(np.quantile(ours, 0.9, method="inverted_cdf")),
                "proa_median": float(np.median(proa)),
                "fixed_size": _fixed_size(min(limit, p), max(limit, p)),
                "repeats": repeats,
            }
        )
    return rows


def _first(reached: BoolArray) -> FloatArray:
    return np.where(reached.any(1), reached.argmax(1) + 1.0, math.inf)


def _fixed_size(low: float, high: float) -> int:
    """Fewest draws with which an exact test tells the two apart, both errors at most 5 %."""
    n: IntArray = np.arange(1, 5000)
    return int(n[stats.binom.sf(stats.binom.isf(0.05, n, low), n, high) >= 0.95][0])


def cost() -> list[Row]:
    """Seconds for 10,000 inputs, the best of three."""
    rows = []
    x = np.random.default_rng(0).random(10_000)
    for name, method in OVER_INPUTS.items():
        times = []
        for _ in range(3):
            start = time.perf_counter()
            method(x, 0)
            times.append(time.perf_counter() - start)
        rows.append({"method": name, "seconds": min(times)})
    return rows


def show(rows: list[Row]) -> None:
    """Print rows under each other, numbers with four digits."""
    for each in rows:
        shown = (f"{v:<11.4g}" if isinstance(v, float) else f"{v!s:<22}" for v in each.values())
        print(" ".join(shown), flush=True)


def main() -> None:
    """Simulate, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    start = time.perf_counter()
    found: dict[str, Any] = {"coverage": []}
    print("table, method, case, coverage, standard error, mean width, repeats")
    for part in (of_counts, of_differences, at_least, at_any_look, false_verdicts, over_inputs):
        rows = part(rng, given.repeats)
        show(rows)
        found["coverage"] += rows
    print("limit, truth, median and 90 % of draws, PRoA's median, exact test of fixed size")
    found["draws"] = draws_needed(rng, min(given.repeats, 500))
    show(found["draws"])
    print("seconds for 10,000 inputs")
    found["cost"] = cost()
    show(found["cost"])
    found["minutes"] = (time.perf_counter() - start) / 60
    print(f"{found['minutes']:.1f} minutes")
    if given.out:
        text = json.dumps(found, indent=1).replace("NaN", "null")
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
