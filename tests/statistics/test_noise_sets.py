"""Sets of noise: the worst failure probability in closed form, its shape, and the dual bounds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from nppr.core.tally import FloatArray
from nppr.errors import SpecError
from nppr.statistics.noise_sets import (
    ChiSquare,
    Contaminated,
    Hellinger,
    KullbackLeibler,
    NoiseSet,
    Offset,
    kl,
    make_set,
    parse_sets,
)

SETS: list[NoiseSet] = [
    *(Contaminated(c, d) for c in (1, 2, 10) for d in (0, 0.01, 0.3)),
    *(kind(e) for kind in (ChiSquare, KullbackLeibler) for e in (0.001, 0.1, 1.0, 5.0)),
    *(Hellinger(e) for e in (0.001, 0.05, 0.3)),
    *(Offset(e) for e in (0.1, 1.0, 3.0)),
]
AT_ZERO: dict[str, Callable[[NoiseSet], float]] = {
    "contaminated": lambda noise: noise.size,
    "hellinger": lambda noise: 1 - (1 - noise.size) ** 2,
}
"""h(0), where it is not 0."""

every_set = pytest.mark.parametrize("noise", SETS, ids=lambda each: f"{each.kind}:{each.label}")

GRID = np.linspace(0, 1, 2001)


@every_set
def test_h_is_concave_and_rises_from_its_value_at_0_to_1(noise: NoiseSet) -> None:
    h = noise.h(GRID)
    start = AT_ZERO[noise.kind](noise) if noise.kind in AT_ZERO else 0.0
    assert h[0] == pytest.approx(start, abs=1e-12)
    assert h[-1] == 1
    assert np.all(np.diff(h) >= -1e-12)
    assert np.all(h >= GRID - 1e-12)
    assert np.all(h <= 1)
    assert np.all(h[1:-1] >= (h[:-2] + h[2:]) / 2 - 1e-9)


@every_set
@pytest.mark.parametrize("p", [1e-4, 0.01, 0.2, 0.6, 0.95])
def test_tangents_touch_and_are_never_below(noise: NoiseSet, p: float) -> None:
    c, d = noise.tangents(np.array([p]))[:, 0]
    assert c * p + d == pytest.approx(float(noise.h(np.array(p))))
    assert np.all(c * GRID + d >= noise.h(GRID) - 1e-9)
    step = 1e-6
    before, after = noise.h(np.array([p - step, p + step]))
    slope = (after - before) / (2 * step)
    # Where h has reached 1, several lines touch it and are never below.
    assert c == pytest.approx(slope, rel=1e-3) or before >= 1 - 1e-5


def bernoulli_divergence(noise: NoiseSet, q: FloatArray, p: float) -> FloatArray:
    """By its definition, for two outcomes."""
    if isinstance(noise, ChiSquare):
        return (q - p) ** 2 / p + (q - p) ** 2 / (1 - p)
    if isinstance(noise, KullbackLeibler):
        return np.array(kl(q, np.full_like(q, p)))
    return 1 - np.sqrt(p * q) - np.sqrt((1 - p) * (1 - q))


@pytest.mark.parametrize("p", [0.001, 0.05, 0.4])
@pytest.mark.parametrize("kind", [ChiSquare, KullbackLeibler, Hellinger])
@pytest.mark.parametrize("size", [0.01, 0.2])
def test_h_is_the_worst_of_two_outcomes(kind: type[ChiSquare], size: float, p: float) -> None:
    noise, q = kind(size), np.linspace(0, 1, 100_001)
    inside = q[bernoulli_divergence(noise, q, p) <= size]
    assert float(noise.h(np.array(p))) == pytest.approx(inside.max(), abs=2e-5)


@pytest.mark.parametrize(("c", "d"), [(1, 0.1), (2, 0.0), (3, 0.05), (1, 0.0)])
@pytest.mark.parametrize("failing", [0, 1, 10, 60])
def test_no_contaminated_noise_is_worse(c: float, d: float, failing: int) -> None:
    """Over all densities on 100 cells by linear programming: A in the first, B in the second half."""
    fails = (np.arange(100) < failing) / 1.0
    # One cell more fails that the reference never reaches: only B may be there.
    gain = -np.concatenate([fails, [0.0], fails, [1.0]])
    masses = np.zeros((2, 202))
    masses[0, :101], masses[1, 101:] = 1, 1
    bounds = [(0, c / 100)] * 100 + [(0, 0)] + [(0, d)] * 101
    found = linprog(gain, A_eq=masses, b_eq=[1 - d, d], bounds=bounds)
    assert found.fun == pytest.approx(-float(Contaminated(c, d).h(np.array(failing / 100))))


@pytest.mark.parametrize("e", [0.1, 1.0])
def test_an_offset_reaches_its_h(e: float) -> None:
    """A half-space is as bad as anything."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal(400_000)
    edge = 1.0
    p, q = np.mean(z > edge), np.mean(z + e > edge)
    assert float(Offset(e).h(np.array(p))) == pytest.approx(q, abs=0.005)


def best_dual(noise: NoiseSet, failures: FloatArray, weights: FloatArray) -> float:
    return min(
        noise.shared_worst(float(noise.score(failures, t) @ weights), t)
        for t in noise.tunings(np.repeat(failures, 8)).tolist()
    )


@every_set
@pytest.mark.parametrize("p", [0.01, 0.2, 0.5])
def test_the_dual_is_tight_for_patterns_that_break_all_or_nothing(
    noise: NoiseSet, p: float
) -> None:
    found = best_dual(noise, np.array([0.0, 1.0]), np.array([1 - p, p]))
    truth = float(noise.h(np.array(p)))
    assert truth - 1e-9 <= found <= truth + 0.01


@every_set
@settings(max_examples=30)
@given(seed=st.integers(0, 10**6))
def test_scores_lie_in_0_to_1_and_the_dual_rises_with_their_mean(
    noise: NoiseSet, seed: int
) -> None:
    failures = np.append(np.random.default_rng(seed).beta(0.5, 2, 40), [0.0, 1.0])
    for t in noise.tunings(failures).tolist():
        scores = noise.score(failures, t)
        assert scores.min() >= 0
        assert scores.max() <= 1 + 1e-12
        ends = [noise.shared_worst(mean, t) for mean in (0.0, 0.1, 0.5, 1.0)]
        assert ends == sorted(ends)
        assert ends[-1] == pytest.approx(1.0)


def divergence(noise: NoiseSet, q: FloatArray, p: FloatArray) -> float:
    if isinstance(noise, Contaminated):
        return float(np.maximum(0, q - noise.c * p).sum())
    if isinstance(noise, ChiSquare):
        return float(((q - p) ** 2 / p).sum())
    if isinstance(noise, KullbackLeibler):
        return float((q * np.log(q / p)).sum())
    return 1 - float(np.sqrt(q * p).sum())


@pytest.mark.parametrize("noise", [each for each in SETS if each.kind != "offset"], ids=str)
@settings(max_examples=30)
@given(seed=st.integers(0, 10**6))
def test_no_noise_of_the_set_is_worse_than_its_dual(noise: NoiseSet, seed: int) -> None:
    """Noise that leans towards bad patterns as far as the set allows, in a random direction."""
    rng = np.random.default_rng(seed)
    failures, p = rng.beta(0.5, 3, 30), rng.dirichlet(np.ones(30))
    towards = p * np.exp(rng.uniform(0, 20) * failures + rng.normal(0, 0.5, 30))
    towards /= towards.sum()
    most = noise.d if isinstance(noise, Contaminated) else noise.size
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        inside = divergence(noise, (1 - middle) * p + middle * towards, p) <= most
        low, high = (middle, high) if inside else (low, middle)
    q = (1 - low) * p + low * towards
    assert q @ failures <= best_dual(noise, failures, p) + 1e-9


def test_larger_sets_contain_smaller_ones() -> None:
    assert Contaminated(2, 0.1).contains(Contaminated(2, 0, "ratio"))
    assert Contaminated(2, 0.1).contains(Contaminated(1, 0.1, "tv"))
    assert not Contaminated(2, 0.1).contains(Contaminated(3, 0))
    assert not Contaminated(2, 0.1).contains(ChiSquare(0.1))
    assert ChiSquare(0.2).contains(ChiSquare(0.1))
    assert not ChiSquare(0.2).contains(KullbackLeibler(0.1))


@every_set
def test_a_set_is_made_again_from_its_facts(noise: NoiseSet) -> None:
    facts = noise.facts
    assert make_set(facts["noise_set"], facts["size"], facts["density_ratio"]) == noise


@pytest.mark.parametrize("least", [0.5, 0.9])
@every_set
def test_the_largest_p_for_a_level(noise: NoiseSet, least: float) -> None:
    p = noise.largest_p(least)
    assert (p is None) == (1 - float(noise.h(np.zeros(()))) < least)
    at = -1e-9 if p is None else p
    assert p is None or 1 - float(noise.h(np.array(at))) >= least
    assert 1 - float(noise.h(np.array(at + 1e-9))) <= least + 1e-6


def test_sizes_are_written_with_plus() -> None:
    assert parse_sets("ratio", None, "1+2") == (Contaminated(1), Contaminated(2))
    assert parse_sets("tv", "0.01+0.05") == (Contaminated(1, 0.01), Contaminated(1, 0.05))
    assert parse_sets("contaminated", "0.01", "2") == (Contaminated(2, 0.01),)
    assert parse_sets("kl", "0.5") == (KullbackLeibler(0.5),)
    assert [len(parse_sets(kind)) for kind in ("ratio", "contaminated", "chi2")] == [4, 1, 3]


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        (("ratio", None, "0.9"), "`density-ratio` must be a number from 1 to 1e.09, got 0.9"),
        (("ratio", None, "inf"), "`density-ratio` must be a number from 1"),
        (("ratio", None, "nan"), "`density-ratio` must be a number from 1"),
        (("ratio", None, "two"), "`density-ratio` must be one or more numbers, got 'two'"),
        (("ratio", None, "1++2"), "`density-ratio` must be one or more numbers"),
        (("ratio", None, "2+2.0"), "`density-ratio` must name every number once"),
        (("ratio", "2", ""), "`size` must not be given with the set ratio"),
        (("tv", "1", ""), "`size of tv` must be a number >= 0 and < 1, got 1. Example: 0.05"),
        (("tv", "-0.1", ""), "`size of tv` must be a number >= 0 and < 1, got -0.1"),
        (("contaminated", "1.5", "2"), "`size of contaminated` must be a number >= 0 and < 1"),
        (("contaminated", "0.1", "0.5"), "`density-ratio` must be a number from 1"),
        (("hellinger", "1", ""), "`size of hellinger` must be a number >= 0 and < 1"),
        (("chi2", "-1", ""), "`size of chi2` must be a number from 0 to 1e.09, got -1"),
        (("kl", "nan", ""), "`size of kl` must be a number from 0"),
        (("tvd", "0.1", ""), "`set` must be one of .*Did you mean 'tv'"),
        (("offset", "1", ""), "`set` must be one of chi2, contaminated, hellinger, kl, ratio, tv"),
    ],
)
def test_bad_sizes_are_named(given_: tuple[str, str | None, str], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_sets(*given_)


def test_words_are_plain() -> None:
    words = {each.label: each.words("uniform noise") for each in map(make_set, ["tv"], [0.05])}
    assert words == {"tv=0.05": "that differs from uniform noise in at most 5 % of its probability"}
    assert (
        make_set("ratio", None, 10).words().endswith("at most 10 times that of the reference noise")
    )
    assert "anything 1 % of the time" in make_set("contaminated", 0.01, 2).words()
    assert math.isclose(make_set("offset", 0.5).size, 0.5)
