"""How often does `nppr compare` name a winner that does not exist, and how often does it miss one?

By simulation, with the function that decides the verdicts. In every case without a difference the
means of both runs are equal on the inputs that both classify correctly, so any verdict is an error.
At 95 % confidence the rate may be at most 5 % plus two Monte Carlo errors; the exit code is 1 if it is
higher anywhere. The last column is the rate of the normal interval of the paired differences. Example:

    python benchmarks/compare_errors.py --repeats 2000
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from nppr.compare.compare_runs import Pair, decide_pairs
from nppr.core.tally import BoolArray, FloatArray
from nppr.statistics.intervals import normal
from nppr.statistics.paired import Share, common_numbers, to_unit

CONFIDENCE = 0.95
DRAWS = 16
ROWS = 14
Random = np.random.Generator
Draw = Callable[[Random], list[Pair]]


class Case(NamedTuple):
    """A way to draw the rows of a comparison."""

    name: str
    draw: Draw


class Rates(NamedTuple):
    """How often any row of a comparison was decided, by the verdicts and by normal intervals."""

    verdicts: float
    normal: float


def share(rates: FloatArray, clean: BoolArray | None = None, *, outcomes: bool = False) -> Share:
    """The number of one run."""
    counts = np.ones(len(rates)) if clean is None else clean.astype(np.float64)
    return Share(rates * counts, counts, outcomes)


def skewed(n: int, loss: float, gain: int, gained: float) -> Draw:
    """`gain` sixteenths more on some inputs and a total loss on few, so that the mean is equal."""
    assert math.isclose(gained * gain / DRAWS, loss)

    def draw(random: Random) -> list[Pair]:
        u = random.random(n)
        wins, lost = u < gained, (gained <= u) & (u < gained + loss)
        rest = random.binomial(DRAWS, 0.85, n) / DRAWS
        a = np.where(wins, 1 - gain / DRAWS, np.where(lost, 1.0, rest))
        b = np.where(wins, 1.0, np.where(lost, 0.0, rest))
        return [(share(a), share(b))]

    return draw


def noisy(n: int, spread: float, unlike: float = 0.0) -> Draw:
    """The same probabilities for both, draws of their own; clean-correct inputs may differ."""

    def draw(random: Random) -> list[Pair]:
        p = random.beta(spread, spread, n)
        sides = []
        for missed in (unlike, unlike / 3):
            clean = random.random(n) >= missed * (1.5 - p)
            clean[0] = True
            sides.append(share(random.binomial(DRAWS, p) / DRAWS, clean))
        return [(sides[0], sides[1])]

    return draw


def find_attacked(n: int, discordant: float, unlike: float = 0.0, towards: float = 0.5) -> Draw:
    """One outcome per input; they differ on a fraction of the inputs, in favour of a `towards`."""

    def draw(random: Random) -> list[Pair]:
        both = random.random(n) < 0.6
        differ, side = random.random(n) < discordant, random.random(n) < towards
        found = [
            share(np.where(differ, wins, both), random.random(n) >= missed, outcomes=True)
            for wins, missed in ((side, unlike), (~side, unlike / 3))
        ]
        return [(found[0], found[1])]

    return draw


def many_rows(one: Draw) -> Draw:
    """Rows of the same law, drawn by themselves."""
    return lambda random: [pair for _ in range(ROWS) for pair in one(random)]


def related_rows(n: int) -> Draw:
    """Rows that share hard inputs: half of them sparse and skewed, the others attacks."""

    def draw(random: Random) -> list[Pair]:
        u, hard, pairs = random.random(n), random.random(n), []
        for at in range(ROWS):
            a = random.binomial(DRAWS, 0.9 - 0.5 * hard * at / ROWS) / DRAWS
            if at % 2:
                ours, theirs = (random.random((2, n)) < hard).astype(np.float64)
                pairs.append((share(ours, outcomes=True), share(theirs, outcomes=True)))
            else:
                a = np.where(u < 0.016, 15 / 16, np.where(u < 0.017, 1.0, a))
                b = np.where(u < 0.016, 1.0, np.where(u < 0.017, 0.0, a))
                pairs.append((share(a), share(b)))
        return pairs

    return draw


def cases_without_a_difference() -> list[Case]:
    """Sparse, skewed, tied, few and many inputs, clean-correct sets that differ, many rows."""
    cases = [
        Case(
            f"n {n}: +{gain}/16 on {gained:.1%}, all lost on {loss:.2%}", skewed(n, loss, gain, gained)
        )
        for n, loss, gain, gained in (
            (400, 0.001, 1, 0.016), (600, 0.001, 1, 0.016), (400, 0.0025, 1, 0.04),
            (400, 0.0025, 2, 0.02), (400, 0.005, 2, 0.04), (400, 0.01, 16, 0.01),
            (50, 0.01, 1, 0.16), (50, 0.001, 1, 0.016), (2000, 0.001, 1, 0.016),
            (2000, 0.005, 1, 0.08), (100, 0.05, 1, 0.8),
        )
    ]  # fmt: skip
    cases += [
        Case(f"n {n}: rates of {DRAWS} draws, Beta({s:g}, {s:g})", noisy(n, s))
        for n in (50, 200, 2000)
        for s in (0.1, 4.0)
    ]
    cases += [
        Case(f"n {n}: the same, clean-correct sets differ", noisy(n, 0.4, 0.1)) for n in (50, 400)
    ]
    cases += [
        Case(f"n {n}: attack, {d:.1%} discordant", find_attacked(n, d))
        for n in (50, 400, 2000)
        for d in (0.01, 0.1, 1.0)
    ]
    cases += [
        Case("n 400: attack, clean-correct sets differ", find_attacked(400, 0.1, 0.1)),
        Case("n 400: everything tied", find_attacked(400, 0.0)),
        Case(f"n 400: {ROWS} rows, sparse and skewed", many_rows(skewed(400, 0.001, 1, 0.016))),
        Case(f"n 400: {ROWS} rows, attacks", many_rows(find_attacked(400, 0.1))),
        Case(f"n 400: {ROWS} related rows", related_rows(400)),
    ]
    return cases


def cases_with_a_difference() -> list[Case]:
    """Two obvious ones, as one of many rows; and smaller ones."""

    def among(one: Draw) -> Draw:
        return lambda random: [*one(random), *many_rows(find_attacked(337, 0.1))(random)[1:]]

    def rates(n: int, better: float, worse: float, unlike: float) -> Draw:
        def draw(random: Random) -> list[Pair]:
            ((a, b),) = find_attacked(n, better + worse, unlike, better / (better + worse))(random)
            drawn = [
                share(
                    random.binomial(DRAWS, np.where(each.above > 0, 0.95, 0.05)) / DRAWS,
                    each.below > 0,
                )
                for each in (a, b)
            ]
            return [(drawn[0], drawn[1])]

        return draw

    found = []
    for better, worse in ((43, 4), (54, 7), (25, 8)):
        for unlike in (0.0, 0.02):
            words = f"{better} : {worse} of 337{', clean-correct sets differ' if unlike else ''}"
            d, towards = (better + worse) / 337, better / (better + worse)
            found += [
                Case(f"attack, {words}, 1 row", find_attacked(337, d, unlike, towards)),
                Case(
                    f"attack, {words}, {ROWS} rows", among(find_attacked(337, d, unlike, towards))
                ),
                Case(
                    f"rates, {words}, {ROWS} rows",
                    among(rates(337, better / 337, worse / 337, unlike)),
                ),
            ]
    return found


def simulate(draw: Draw, repeats: int, random: Random, *, first: bool = False) -> Rates:
    """How often any row is decided, or of several rows the first one."""
    decided = by_normal = 0
    for _ in range(repeats):
        pairs = draw(random)
        looked = slice(0, 1 if first else None)
        decided += any(each.separated for each in decide_pairs(pairs, CONFIDENCE)[looked])
        level = 1 - (1 - CONFIDENCE) / len(pairs)
        ends = (normal(to_unit(*common_numbers(*pair)), level) for pair in pairs[looked])
        by_normal += any(not end.low <= 0.5 <= end.high for end in ends)
    return Rates(decided / repeats, by_normal / repeats)


def table(cases: list[Case], repeats: int, random: Random, *, power: bool) -> Iterator[bool]:
    """Print one line for each case; yield whether its rate of errors is too high."""
    print(f"{'case':62} {'decided':>9} {'error':>7} {'normal':>8}")
    for case in cases:
        found = simulate(case.draw, repeats, random, first=power)
        error = math.sqrt(found.verdicts * (1 - found.verdicts) / repeats)
        limit = 1 - CONFIDENCE + 2 * math.sqrt((1 - CONFIDENCE) * CONFIDENCE / repeats)
        high = found.verdicts > limit and not power
        print(
            f"{case.name:62} {found.verdicts:9.1%} {error:7.1%} {found.normal:8.1%}"
            + "  TOO HIGH" * high,
            flush=True,
        )
        yield high


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    random = np.random.default_rng(given.seed)
    print("no difference: how often a winner is named")
    wrong = list(table(cases_without_a_difference(), given.repeats, random, power=False))
    print("\na difference: how often it is found")
    list(table(cases_with_a_difference(), given.repeats // 4, random, power=True))
    return int(any(wrong))


if __name__ == "__main__":
    sys.exit(main())
