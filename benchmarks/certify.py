"""How often is a verdict of `nppr certify` false, and how many draws does a true one take?

By simulation. False *holds* are counted where the truth is 0.001 below the limit of 0.9, false
*violated* where it is 0.001 above it, in streams of up to 100,000 draws; the test looks at them after
every 64 draws, as `certify` does, and after every single one. Draws to a verdict are compared with
PRoA's adaptive Hoeffding test and with the smallest exact test of fixed size. For sets of noise the
value asked for is exactly the truth, so that either verdict is false: with few and many inputs, some of
which always fail, about the population (each input once) and about the test set (with replacement).
Then the values are found that can be shown where one input in 100 always fails. Example:

    python benchmarks/certify.py --classifiers 1000
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable

import numpy as np
from scipy import stats

from nppr.core.tally import BoolArray, FloatArray, IntArray
from nppr.gate.sequential_draws import AT_ONCE
from nppr.statistics.noise_set_test import SET_DRAWS, NoiseSetTest
from nppr.statistics.noise_sets import ChiSquare, Contaminated, Hellinger, KullbackLeibler, NoiseSet
from nppr.statistics.sequential import BernoulliTest, Verdict, one_sided_evidence

SETS: tuple[NoiseSet, ...] = (
    ChiSquare(1.0),
    KullbackLeibler(0.1),
    Contaminated(10.0, kind="ratio"),
    Contaminated(1.0, 0.05, "tv"),
    Hellinger(0.05),
)
LAWS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "1 % always fail": lambda u: (u < 0.01).astype(float),
    "half always fail": lambda u: (u < 0.5).astype(float),
    "skewed": lambda u: np.minimum(1.0, 0.25 * u**4),
    "all at .03": lambda u: np.full_like(u, 0.03),
}
"""Failure probabilities of inputs: their quantile functions."""
INPUTS = (20, 60, 1000)
VISITS = 1024
"""Of inputs drawn with replacement."""
LIMIT, OFF = 0.9, 0.001
CONFIDENCE, ERROR = 0.95, 0.05
DRAWS = 100_000
ROBUST = 0.99
ENOUGH = 4000
"""Draws within which every test tells ROBUST from LIMIT."""


def least_correct(draws: IntArray) -> IntArray:
    """The fewest correct draws at which `BernoulliTest` returns HOLDS, `draws + 1` if none do."""
    return _threshold(draws, above=True)


def most_correct(draws: IntArray) -> IntArray:
    """The most correct draws at which it returns VIOLATED, -1 if none do."""
    return draws - _threshold(draws, above=False)


def _threshold(draws: IntArray, *, above: bool) -> IntArray:
    """By bisection: the evidence grows with the count of what speaks for it."""
    needed = BernoulliTest(LIMIT, CONFIDENCE).needed
    low, high = np.full_like(draws, -1), draws + 1
    while np.any(high - low > 1):
        middle = (low + high) // 2
        correct = np.clip(middle if above else draws - middle, 0, draws)
        enough = one_sided_evidence(correct, draws - correct, LIMIT, above) >= needed
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


def check_thresholds(draws: IntArray, least: IntArray, most: IntArray) -> None:
    """The test itself, at and next to the thresholds of some numbers of draws."""
    for at in np.unique(np.geomspace(1, len(draws), 60).astype(int)) - 1:
        n = int(draws[at])
        for correct in {int(least[at]) - 1, int(least[at]), int(most[at]), int(most[at]) + 1}:
            if 0 <= correct <= n:
                said = BernoulliTest(LIMIT, CONFIDENCE).update(correct, n)
                assert (said is Verdict.HOLDS) == (correct >= least[at]), (correct, n)
                assert (said is Verdict.VIOLATED) == (correct <= most[at]), (correct, n)


def at_every_block(wrong: IntArray) -> tuple[Verdict, int]:
    """What the test says of a stream, given the positions of its failures, and after how many draws."""
    counts = np.bincount(wrong // AT_ONCE, minlength=-(-DRAWS // AT_ONCE))
    test = BernoulliTest(LIMIT, CONFIDENCE)
    for failures in counts.tolist():
        size = min(AT_ONCE, DRAWS - test.draws)
        if test.update(size - failures, size) is not Verdict.UNDECIDED:
            break
    return test.verdict, test.draws


def at_every_draw(wrong: IntArray, least: IntArray, most: IntArray) -> tuple[Verdict, int]:
    """The same, looked at after every draw."""
    failed = np.zeros(DRAWS, np.int64)
    failed[wrong] = 1
    correct = np.arange(1, DRAWS + 1) - np.cumsum(failed)
    stops = np.flatnonzero((correct >= least) | (correct <= most))
    if not len(stops):
        return Verdict.UNDECIDED, DRAWS
    at = int(stops[0])
    return (Verdict.HOLDS if correct[at] >= least[at] else Verdict.VIOLATED), at + 1


def false_verdicts(classifiers: int, seed: int) -> bool:
    """Print four lines; whether false verdicts are seldom enough."""
    rng = np.random.default_rng(seed)
    draws = np.arange(1, DRAWS + 1)
    least, most = least_correct(draws), most_correct(draws)
    check_thresholds(draws, least, most)
    good = []
    print("robustness  looks        false verdict         true verdict  undecided")
    for truth, false in ((LIMIT - OFF, Verdict.HOLDS), (LIMIT + OFF, Verdict.VIOLATED)):
        said: dict[str, list[Verdict]] = {"every block": [], "every draw": []}
        for _ in range(classifiers):
            wrong = np.flatnonzero(rng.random(DRAWS) >= truth)
            said["every block"].append(at_every_block(wrong)[0])
            said["every draw"].append(at_every_draw(wrong, least, most)[0])
        for looks, verdicts in said.items():
            share = float(np.mean([each is false for each in verdicts]))
            open_ = float(np.mean([each is Verdict.UNDECIDED for each in verdicts]))
            error = math.sqrt(share * (1 - share) / classifiers)
            found = f"{false.value:<8} {100 * share:4.1f} % +- {100 * error:.1f}"
            others = f"{100 * (1 - share - open_):10.1f} %  {100 * open_:7.1f} %"
            print(f"{truth:<10.3f}  {looks:<11}  {found}  {others}", flush=True)
            good.append(share <= ERROR)
    return all(good)


def to_decide(classifiers: int, seed: int) -> bool:
    """Print the median draws to tell ROBUST from LIMIT; whether ours are as few as promised."""
    rng = np.random.default_rng(seed)
    draws = np.arange(1, ENOUGH + 1)
    correct: IntArray = np.cumsum(rng.random((classifiers, ENOUGH)) < ROBUST, axis=1)
    level = 0.6 * np.log(np.log(draws) / math.log(1.1) + 1) + math.log(24 / ERROR) / 1.8
    ours = _median((correct >= least_correct(draws)) | (correct <= most_correct(draws)))
    proa = _median(np.abs(correct / draws - LIMIT) > np.sqrt(level / draws))
    fixed = fixed_size()
    print(f"median draws to tell {ROBUST} from {LIMIT}, looks at every draw")
    print(f"ours {ours:g}, PRoA {proa:g}, exact test of fixed size {fixed}")
    print(f"ours / PRoA {ours / proa:.3f} (target: at most 0.2)")
    print(f"ours / fixed size {ours / fixed:.2f} (target: at most 2)")
    return ours <= proa / 5 and ours <= 2 * fixed


def _median(decided: BoolArray) -> float:
    return float(np.median(np.where(decided.any(1), decided.argmax(1) + 1.0, math.inf)))


def fixed_size() -> int:
    """Fewest draws with which an exact binomial test has both errors at most 5 %."""
    n: IntArray = np.arange(1, 1000)
    power = stats.binom.sf(stats.binom.isf(ERROR, n, LIMIT), n, ROBUST)
    return int(n[power >= 1 - ERROR][0])


def of_a_set(noise: NoiseSet, at_least: float, p: FloatArray, rng: np.random.Generator) -> Verdict:
    """What is said of a set of noise: p are the failure probabilities of the inputs as they come."""
    test = NoiseSetTest(noise, at_least, CONFIDENCE)
    for start in range(0, len(p), AT_ONCE):
        test.update(rng.binomial(SET_DRAWS, p[start : start + AT_ONCE]))
        if test.verdict is not Verdict.UNDECIDED:
            break
    return test.verdict


def false_verdicts_on_sets(repeats: int, seed: int) -> bool:
    """Print a line for each set and law; whether false verdicts are seldom enough."""
    rng = np.random.default_rng(seed)
    allowed = ERROR + 2 * math.sqrt(ERROR * (1 - ERROR) / repeats)
    print(f"{repeats} tests of each set at the truth: false holds and violated in %")
    print(f"{'':34}" + "".join(f"{f'{n} inputs':>26}" for n in INPUTS))
    print(f"{'set':16}{'inputs':18}" + f"{'population':>13}{'test set':>13}" * len(INPUTS))
    worst = 0.0
    for noise in SETS:
        for name, quantile in LAWS.items():
            grid = 1 - noise.h(quantile((np.arange(10**5) + 0.5) / 10**5))
            cells = ""
            for n in INPUTS:
                for replaced in (False, True):
                    found = []
                    for _ in range(repeats):
                        p = quantile(
                            rng.permutation(np.arange(n) / n) if replaced else rng.random(n)
                        )
                        truth = float((1 - noise.h(p)).mean() if replaced else grid.mean())
                        if replaced:
                            p = p[rng.integers(n, size=VISITS)]
                        found.append(of_a_set(noise, truth, p, rng))
                    shares = [
                        found.count(each) / repeats for each in (Verdict.HOLDS, Verdict.VIOLATED)
                    ]
                    worst = max(worst, *shares)
                    cells += f"{100 * shares[0]:6.1f} + {100 * shares[1]:4.1f}"
            print(f"{noise.label:16}{name:18}{cells}", flush=True)
    print(f"largest {100 * worst:.1f} %, allowed {100 * allowed:.1f} % (5 % + 2 standard errors)")
    return worst <= allowed


def values_shown(_: int, seed: int) -> bool:
    """Print the values that can be shown of 1,000 inputs of which 10 always fail; whether they rose."""
    print(
        "1,000 inputs, 10 of which always fail: the largest value shown in at least half of 8 runs"
    )
    print("set             truth  h of mean p  population  test set, 6,000 visits")
    rng = np.random.default_rng(seed)
    good = True
    for noise in (ChiSquare(1.0), KullbackLeibler(0.5), Contaminated(10.0, kind="ratio")):
        shown = []
        for replaced in (False, True):
            p = (np.arange(1000) < 10).astype(float)
            low, high = 0, 100 * 10
            while high - low > 1:
                middle = (low + high) // 2
                said = [
                    of_a_set(
                        noise,
                        middle / 1000,
                        p[rng.integers(1000, size=6000)] if replaced else rng.permutation(p),
                        rng,
                    )
                    if (noise.largest_p(middle / 1000) or 0.0) >= 1e-9
                    else Verdict.UNDECIDED
                    for _ in range(8)
                ]
                enough = said.count(Verdict.HOLDS) >= 4
                low, high = (middle, high) if enough else (low, middle)
            shown.append(low / 10)
        jensen = 100 * (1 - float(noise.h(np.array(0.01))))
        print(
            f"{noise.label:14}{99.0:7.1f}{jensen:13.1f}{shown[0]:12.1f}{shown[1]:12.1f}", flush=True
        )
        good &= min(shown) > jensen
    return good


def main() -> None:
    """Simulate and print; the exit code says whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classifiers", type=int, default=1000)
    parser.add_argument("--sets", type=int, default=200, help="tests of each set and law")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    start = time.perf_counter()
    good = [part(given.classifiers, given.seed) for part in (to_decide, false_verdicts)]
    good += [part(given.sets, given.seed) for part in (values_shown, false_verdicts_on_sets)]
    print(f"{time.perf_counter() - start:.0f} seconds")
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
