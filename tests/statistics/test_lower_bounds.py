"""From counts to what holds at least: rows, errors by simulation, and order."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from nppr.core.tally import (
    Claim,
    Direction,
    Estimate,
    Evaluate,
    Fit,
    FloatArray,
    IntArray,
    Metric,
    Tally,
)
from nppr.errors import SpecError, SplitError
from nppr.statistics.intervals import clopper_pearson_upper, exact_upper
from nppr.statistics.lower_bounds import (
    PerInputDraws,
    bound_pooled_failures,
    conservative_scores,
    estimate_bounds,
    estimate_bounds_jointly,
    find_largest_sets,
    lower_population,
    lower_test_set,
    tangent_scores,
)
from nppr.statistics.noise_sets import (
    ChiSquare,
    Contaminated,
    Hellinger,
    KullbackLeibler,
    NoiseSet,
    Offset,
    make_set,
)

pytestmark = pytest.mark.slow

RATIOS = (1.0, 2.0, 5.0, 10.0)

Law = Callable[[np.random.Generator, int], FloatArray]


def tally(wrong: IntArray, draws: int) -> Tally[Evaluate]:
    return Tally(
        kind=Evaluate,
        indices=np.arange(len(wrong)),
        labels=np.zeros(len(wrong), np.int64),
        clean_correct=np.ones(len(wrong), bool),
        correct=draws - wrong,
        draws=draws,
        calls=len(wrong) * draws,
        micro_batch=8,
    )


def read(
    counted: Tally[Evaluate], noise: NoiseSet, confidence: float, seed: int = 0
) -> list[Estimate]:
    return estimate_bounds(PerInputDraws(counted, seed), noise, confidence)


KNOWN = tally(np.array([0, 0, 1, 4, 20]), 20)


def test_there_are_two_lower_bounds_and_an_estimate() -> None:
    here, everywhere, estimate = read(KNOWN, Contaminated(2), 0.9)
    assert (here.claim, everywhere.claim) == (Claim.TEST_SET, Claim.POPULATION)
    assert (here.method, everywhere.method) == ("exact", "betting")
    for row in (here, everywhere):
        assert row.metric is Metric.BOUND
        assert row.direction is Direction.LOWER_BOUND
        assert (row.low, row.high) == (row.value, 1.0)
        assert 0 <= row.value < estimate.value
    assert (estimate.metric, estimate.direction) == (Metric.INFIMUM, Direction.ESTIMATE)
    assert (estimate.claim, estimate.method) == (Claim.POPULATION, "bootstrap")
    assert estimate.low < estimate.value < estimate.high
    for row in (here, everywhere, estimate):
        assert (row.inputs, row.draws, row.calls) == (5, 20, 100)
        assert (row.confidence, row.split, row.flags) == (0.9, "evaluate", ())


@pytest.mark.parametrize(
    ("c", "value"),
    [(1, (1 + 1 + 0.95 + 0.8 + 0) / 5), (2, (1 + 1 + 0.9 + 0.6) / 5), (10, (1 + 1 + 0.5) / 5)],
)
def test_the_estimate_by_hand(c: float, value: float) -> None:
    assert read(KNOWN, Contaminated(c), 0.95)[-1].value == pytest.approx(value)


def test_a_ratio_of_1_is_the_exact_bound_of_all_draws_together() -> None:
    here, *_ = read(KNOWN, Contaminated(1), 0.95)
    assert here.value == 1 - float(clopper_pearson_upper(np.array([25]), 100, 0.95)[0])


def test_without_failures_the_bound_has_a_closed_form() -> None:
    here, *_ = read(tally(np.zeros(50, np.int64), 20), Contaminated(5), 0.95)
    assert here.value == pytest.approx(1 - 5 * (1 - (0.05 / 3) ** (1 / 1000)))


def test_the_estimate_is_too_high_on_average() -> None:
    """The infimum is convex in p: summed exactly over the counts of 10 draws."""
    p, draws, c = 0.15, 10, 5.0
    wrong = np.arange(draws + 1)
    values = [read(tally(np.array([k]), draws), Contaminated(c), 0.95)[-1].value for k in wrong]
    expected = float((stats.binom.pmf(wrong, draws, p) * values).sum())
    assert expected > 1 - c * p + 0.03


def test_the_estimate_falls_with_the_ratio() -> None:
    values = [
        read(KNOWN, Contaminated(c), 0.95)[-1].value for c in (1, 1.01, 1.5, 2, 5, 10, 20, 1e9)
    ]
    assert values == sorted(values, reverse=True)
    assert values[-1] == pytest.approx(2 / 5)


COUNTS = {
    "all robust": np.zeros(100, np.int64),
    "alike": np.full(100, 2),
    "of all kinds": np.random.default_rng(0).binomial(100, np.linspace(0, 0.3, 100)),
    "fragile or robust": np.repeat([0, 100], [50, 50]),
}


@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("claim", [0, 1])
def test_bounds_fall_with_the_ratio(claim: int, counts: str) -> None:
    """What holds for all noise of a larger ratio holds for all noise of a smaller one."""
    found = tally(COUNTS[counts], 100)
    sets = [Contaminated(c) for c in RATIOS]
    rows = estimate_bounds_jointly(PerInputDraws(found), sets, 0.95)
    values = [row.value for row in rows[claim::3]]
    assert values == sorted(values, reverse=True)
    alone = [read(found, Contaminated(c), 1 - 0.05 / len(RATIOS))[claim].value for c in RATIOS]
    assert all(value >= each for value, each in zip(values, alone, strict=True))
    assert {row.confidence for row in rows} == {0.95}


@settings(max_examples=30)
@given(st.integers(1, 30), st.integers(2, 40), st.floats(1, 30), st.data())
def test_bounds_are_shares_below_the_estimate(
    inputs: int, draws: int, c: float, data: st.DataObject
) -> None:
    wrong = data.draw(st.lists(st.integers(0, draws), min_size=inputs, max_size=inputs))
    here, everywhere, estimate = read(tally(np.array(wrong), draws), Contaminated(c), 0.95)
    for row in (here, everywhere):
        assert 0 <= row.value <= estimate.value + 1e-9
    assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1


def tiny(rng: np.random.Generator, inputs: int) -> FloatArray:
    return rng.uniform(0, 0.002, inputs)


def bimodal(rng: np.random.Generator, inputs: int) -> FloatArray:
    fragile = rng.random(inputs) < 0.2
    return np.where(fragile, rng.uniform(0.5, 1, inputs), rng.uniform(0, 0.01, inputs))


def skewed(rng: np.random.Generator, inputs: int) -> FloatArray:
    return rng.beta(0.5, 5, inputs)


TRUTHS: dict[Law, Callable[[float], float]] = {
    tiny: lambda c: 1 - 0.001 * c,
    bimodal: lambda c: 0.8 * (1 - 0.005 * c) + 0.2 * (0.25 if c == 1 else 0),
    skewed: lambda c: float(
        stats.beta.cdf(1 / c, 0.5, 5) - c * 0.5 / 5.5 * stats.beta.cdf(1 / c, 1.5, 5)
    ),
}
"""The expectation of max(0, 1 - c p) for the ratios above."""


@pytest.mark.parametrize("c", RATIOS)
@pytest.mark.parametrize("law", TRUTHS)
def test_bounds_above_the_truth_are_rare(law: Law, c: float) -> None:
    """`benchmarks/bound.py` in small."""
    rng = np.random.default_rng(1)
    repeats, missed = 60, np.zeros(2)
    for seed in range(repeats):
        inputs, draws = int(rng.integers(200, 501)), int(rng.integers(16, 101))
        p = law(rng, inputs)
        here, everywhere, _ = read(
            tally(rng.binomial(draws, p), draws), Contaminated(c), 0.95, seed
        )
        missed += here.value > np.maximum(0, 1 - c * p).mean(), everywhere.value > TRUTHS[law](c)
    assert max(missed) / repeats <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / repeats)


def test_the_seed_resamples() -> None:
    first, again, other = (read(KNOWN, Contaminated(2), 0.95, seed)[-1] for seed in (0, 0, 1))
    assert first == again
    assert (first.low, first.high) != (other.low, other.high)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, 2.0, math.nan])
def test_bad_confidence_is_named(confidence: float) -> None:
    with pytest.raises(SpecError, match="`confidence` must lie in"):
        read(KNOWN, Contaminated(2), confidence)


@pytest.mark.parametrize("c", [1.0, 2.0])
def test_a_confidence_that_is_too_small_is_named_as_it_was_given(c: float) -> None:
    with pytest.raises(SpecError, match=r"`confidence` must be at least .*, got 0.2\."):
        read(KNOWN, Contaminated(c), 0.2)


@pytest.mark.parametrize("c", [0.5, -1.0, math.nan])
def test_bad_ratios_are_named(c: float) -> None:
    with pytest.raises(SpecError, match="`density-ratio` must be a number from 1"):
        read(KNOWN, Contaminated(c), 0.95)


def test_no_clean_correct_input_is_named() -> None:
    with pytest.raises(SpecError, match="at least one clean-correct input"):
        read(replace(KNOWN, clean_correct=np.zeros(5, bool)), Contaminated(2), 0.95)


def test_tallies_of_other_splits_cannot_be_reported() -> None:
    with pytest.raises(SplitError, match="'fit'"):
        read(replace(KNOWN, kind=Fit), Contaminated(2), 0.95)  # type: ignore[arg-type]


def mostly_robust(rng: np.random.Generator, n: int, fragile: float) -> FloatArray:
    """Failure probabilities: a share near 1, the others near 0."""
    return np.where(rng.random(n) < fragile, rng.beta(5, 0.5, n), rng.beta(0.5, 200, n))


def clipped(p: FloatArray, c: float) -> float:
    return float(np.maximum(0, 1 - c * p).mean())


def sum_distribution(p: FloatArray) -> FloatArray:
    """Probabilities of 0 ... n successes of independent draws with probabilities p."""
    found = np.ones(1)
    for each in p:
        found = np.convolve(found, [1 - each, each])
    return found


def test_pooled_counts_cover_any_probabilities() -> None:
    """Summed exactly over the outcomes of unequal probabilities, some of them extreme."""
    rng = np.random.default_rng(3)
    for n in (1, 2, 3, 10, 30):
        high = np.array(
            [bound_pooled_failures(np.array([k] + [0] * (n - 1)), 1, 0.95) for k in range(n + 1)]
        )
        for _ in range(200):
            a, b = rng.choice([0.05, 0.3, 1, 5], 2)
            p = rng.beta(float(a), float(b), n)
            p = np.where(rng.random(n) < rng.choice([0, 0.5]), np.round(p), p)
            missed = sum_distribution(p)[high < p.mean()].sum()
            assert missed <= 0.05 + 1e-12


def test_pooled_counts_would_not_cover_without_the_exception() -> None:
    """Why the bound is 1 where it exceeds 1 - 1/n: one input that fails less often than others."""
    n, error = 10, 0.2
    p = np.append(np.ones(n - 1), 1 - n * (1 - 1e-9) * -math.expm1(math.log1p(-error) / n))
    plain = exact_upper(np.arange(n + 1), n, error)
    assert sum_distribution(p)[plain < p.mean() - 1e-15].sum() > error
    amended = np.where(plain > 1 - 1 / n, 1, plain)
    assert sum_distribution(p)[amended < p.mean()].sum() <= error
    assert bound_pooled_failures(np.array([n - 1] + [0] * (n - 1)), 1, 1 - error) == 1.0


def test_pooled_is_clopper_pearson_of_the_sum() -> None:
    wrong = np.array([0, 3, 1])
    exact = float(clopper_pearson_upper(np.array([4]), 60, 0.95)[0])
    assert bound_pooled_failures(wrong, 20, 0.95) == exact
    assert lower_test_set(wrong, 20, Contaminated(1), 0.95) == 1 - exact


@pytest.mark.parametrize("c", [1.0, 2.0, 10.0])
@pytest.mark.parametrize("fragile", [0.0, 0.1, 0.8])
@pytest.mark.parametrize("draws", [1, 16, 100])
def test_lower_bounds_of_this_test_set_hold(c: float, fragile: float, draws: int) -> None:
    rng = np.random.default_rng(4)
    p = mostly_robust(rng, 100, fragile)
    truth, repeats = clipped(p, c), 300
    found = [
        lower_test_set(rng.binomial(draws, p), draws, Contaminated(c), 0.9, s)
        for s in range(repeats)
    ]
    assert np.mean(np.array(found) > truth) <= 0.1 + 3 * math.sqrt(0.09 / repeats)
    assert min(found) >= 0


def test_lower_bounds_hold_where_each_part_is_stressed() -> None:
    """All at the edge of the clip, where choosing a group on the same draws would cheat."""
    rng = np.random.default_rng(5)
    p = np.full(200, 0.1)
    wrong = rng.binomial(20, p)
    cheating = (1 - 10 * wrong[wrong == 0].mean()) * (wrong == 0).mean()
    assert cheating > 0.05 > clipped(p, 10) == pytest.approx(0, abs=1e-9)
    found = [lower_test_set(rng.binomial(20, p), 20, Contaminated(10), 0.9, s) for s in range(500)]
    assert np.mean(np.array(found) > 1e-9) <= 0.1 + 3 * math.sqrt(0.09 / 500)


def test_each_of_the_three_is_the_largest_somewhere() -> None:
    """Alike inputs: pooled. Few inputs of many draws: one by one. Some inputs fragile: a group."""
    alike = np.full(500, 1)
    assert lower_test_set(alike, 200, Contaminated(2), 0.95) == pytest.approx(
        1 - 2 * float(exact_upper(np.array([500]), 100_000, 0.05 / 3)[0])
    )
    few = np.array([0, 3000, 10_000])
    singles = np.maximum(0, 1 - 2 * exact_upper(few, 10_000, 0.05 / 9)).mean()
    assert lower_test_set(few, 10_000, Contaminated(2), 0.95) == pytest.approx(singles)
    some = np.repeat([0, 50], [900, 100])
    group = 1 - 10 * float(exact_upper(np.array([0]), 900 * 25, 0.05 / 3)[0])
    assert lower_test_set(some, 50, Contaminated(10), 0.95) == pytest.approx(0.9 * group)
    assert group > 0.98


@given(st.integers(2, 40), st.floats(1, 30), st.integers(0, 10**6))
def test_no_failures_bound_best_and_failures_only_lower_it(draws: int, c: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    none = np.zeros(20, np.int64)
    wrong = rng.integers(0, draws + 1, 20)
    for method in (lower_test_set, lower_population):
        best = method(none, draws, Contaminated(c), 0.95)
        assert 0 <= method(wrong, draws, Contaminated(c), 0.95) <= best <= 1
        assert method(np.full(20, draws), draws, Contaminated(c), 0.95) == 0
        assert method(none, draws, Contaminated(c), 0.99) <= best


@pytest.mark.parametrize(("draws", "c"), [(1, 3.0), (2, 2.0), (16, 1.0), (16, 10.0), (100, 2.5)])
def test_scores_are_conservative_for_every_probability(draws: int, c: float) -> None:
    """Their expectation, summed exactly, is the formula of the proof and at most max(0, 1 - c p)."""
    g = conservative_scores(draws, c)
    held = min(math.ceil(c) - 1, draws // 2)
    for p in np.linspace(0, 1, 101):
        expected = float((stats.binom.pmf(np.arange(draws + 1), draws, p) * g).sum())
        assert expected == pytest.approx((1 - p) ** held * (1 - c * p), abs=1e-9)
        assert expected <= max(0, 1 - c * p) + 1e-9


def test_scores_by_splitting() -> None:
    """The closed form against random splits of 5 draws of which 2 failed, c = 3."""
    rng = np.random.default_rng(6)
    draws = rng.permuted(np.tile([1, 1, 0, 0, 0], (40_000, 1)), axis=1)
    values = (draws[:, :2].sum(1) == 0) * (1 - 3 * draws[:, 2:].mean(1))
    slack = 3 * values.std() / math.sqrt(len(values))
    assert conservative_scores(5, 3.0)[2] == pytest.approx(values.mean(), abs=slack)


@pytest.mark.parametrize("c", [1.0, 2.0, 10.0])
@pytest.mark.parametrize("fragile", [0.0, 0.3])
def test_lower_bounds_of_the_population_hold(c: float, fragile: float) -> None:
    rng = np.random.default_rng(7)
    truth = clipped(mostly_robust(rng, 10**6, fragile), c)
    repeats = 400
    found = [
        lower_population(
            rng.binomial(16, mostly_robust(rng, 100, fragile)), 16, Contaminated(c), 0.9, s
        )
        for s in range(repeats)
    ]
    assert np.mean(np.array(found) > truth) <= 0.1 + 3 * math.sqrt(0.09 / repeats)


def test_population_bounds_are_of_use() -> None:
    """Where some inputs always fail, far above 1 - c U."""
    wrong = np.repeat([0, 100], [900, 100])
    assert lower_population(wrong, 100, Contaminated(10), 0.95) > 0.85
    assert 1 - 10 * bound_pooled_failures(wrong, 100, 0.95) < 0


@pytest.mark.parametrize("c", [0.5, math.inf, math.nan])
def test_bad_factors_are_named(c: float) -> None:
    for method in (lower_test_set, lower_population):
        with pytest.raises(SpecError, match="`density-ratio`"):
            method(np.array([1]), 10, Contaminated(c), 0.95)


def test_small_confidence_is_refused_where_pooling_needs_more() -> None:
    with pytest.raises(SpecError, match=r"at least 0\.75"):
        bound_pooled_failures(np.array([1]), 10, 0.7)


CURVED: list[NoiseSet] = [
    Contaminated(2, 0.01),
    Contaminated(1, 0.05, "tv"),
    ChiSquare(1.0),
    KullbackLeibler(0.3),
    Hellinger(0.02),
    Offset(0.5),
]


@pytest.mark.parametrize("noise", CURVED, ids=lambda each: each.label)
def test_bounds_of_every_set_hold_for_both_claims(noise: NoiseSet) -> None:
    """`benchmarks/bound.py` in small: some inputs fragile, the others nearly robust."""
    rng, repeats, missed = np.random.default_rng(8), 100, np.zeros(2)
    expected = float((1 - noise.h(mostly_robust(rng, 10**6, 0.1))).mean())
    for seed in range(repeats):
        inputs, draws = int(rng.integers(50, 300)), int(rng.choice([16, 100]))
        p = mostly_robust(rng, inputs, 0.1)
        wrong = rng.binomial(draws, p)
        here = lower_test_set(wrong, draws, noise, 0.9, seed)
        everywhere = lower_population(wrong, draws, noise, 0.9, seed)
        missed += here > (1 - noise.h(p)).mean(), everywhere > expected
        assert here > 0.3
    assert max(missed) / repeats <= 0.1 + 2 * math.sqrt(0.09 / repeats)


def test_a_set_inside_another_has_no_lower_bound_than_it() -> None:
    inside, outside = Contaminated(2, kind="ratio"), Contaminated(2, 0.01)
    rows = estimate_bounds_jointly(
        PerInputDraws(tally(COUNTS["alike"], 100)), [outside, inside], 0.95, infima=False
    )
    assert [row.size for row in rows] == [0.01, 0.01, None, None]
    for claim in (0, 1):
        assert rows[2 + claim].value >= rows[claim].value


def test_the_largest_set_is_the_last_before_the_first_that_fails() -> None:
    found = PerInputDraws(tally(COUNTS["alike"], 100))
    family = [make_set("ratio", None, c) for c in (1, 2, 5, 10, 20)]
    here, everywhere = find_largest_sets(found, [family], 0.8, 0.95)
    for row, claim in ((here, Claim.TEST_SET), (everywhere, Claim.POPULATION)):
        assert (row.claim, row.value, row.low) == (claim, 0.8, 0.8)
        bounds = [found.lower(claim, noise, 0.95) for noise in family]
        last = next(i for i, bound in enumerate(bounds) if bound < 0.8) - 1
        assert row.density_ratio == family[last].size
    assert here.density_ratio == 5


def test_where_even_the_smallest_set_fails_its_own_bound_is_stated() -> None:
    found = PerInputDraws(tally(COUNTS["fragile or robust"], 100))
    here, _ = find_largest_sets(
        found, [[Contaminated(c, kind="ratio") for c in (1.0, 2.0)]], 0.8, 0.95
    )
    assert here.density_ratio == 1
    assert here.value == pytest.approx(0.5, abs=0.01)


def test_the_largest_size_is_too_large_as_rarely_as_stated() -> None:
    """All inputs fail with probability 0.02, so c = 5 is the largest for which 90 % hold."""
    rng, repeats = np.random.default_rng(9), 200
    family = [Contaminated(c, kind="ratio") for c in (1.0, 2.0, 3.0, 4.0, 4.5, 5.0, 5.5, 6.0, 8.0)]
    answers = []
    for seed in range(repeats):
        draws = PerInputDraws(tally(rng.binomial(16, np.full(50, 0.02)), 16), seed)
        answers.append(find_largest_sets(draws, [family], 0.9, 0.9)[0].density_ratio)
    assert np.mean(np.array(answers) > 5) <= 0.1 + 2 * math.sqrt(0.09 / repeats)


SMOOTH: list[NoiseSet] = [
    Offset(0.5),
    Offset(1.0),
    Offset(2.0),
    ChiSquare(1.0),
    KullbackLeibler(0.5),
]


@pytest.mark.parametrize("noise", [*SMOOTH, Hellinger(0.05)], ids=str)
@pytest.mark.parametrize("draws", [1, 2, 9, 100])
def test_tangent_scores_are_conservative_for_every_probability(draws: int, noise: NoiseSet) -> None:
    """Their expectation, summed exactly, is at most 1 - h(p), and near it with many draws."""
    g = tangent_scores(draws, noise)
    p = np.linspace(0, 1, 201)
    weights = stats.binom.pmf(np.arange(draws + 1)[:, None], draws, p)
    excess = g @ weights - (1 - noise.h(p))
    assert excess.max() <= 1e-9
    if draws == 100:
        assert excess[p >= 0.02].min() > -0.04


def test_tangent_scores_by_splitting() -> None:
    """Against random divisions of 16 draws, of which 5 failed, into 14 and 2."""
    rng, noise = np.random.default_rng(6), Offset(1.0)
    draws = rng.permuted(np.tile(np.arange(16) < 5, (40_000, 1)), axis=1)
    c, d = noise.tangents((draws[:, :14].sum(1) + 0.5) / 15)
    values = 1 - d - c * draws[:, 14:].mean(1)
    assert tangent_scores(16, noise)[5] == pytest.approx(values.mean(), abs=0.01)


@pytest.mark.parametrize("noise", SMOOTH, ids=str)
@pytest.mark.parametrize("draws", [2, 100])
def test_bounds_of_curved_sets_above_the_truth_are_rare(noise: NoiseSet, draws: int) -> None:
    """Many kinds of inputs, where groups and tangents are chosen, and inputs that are all alike."""
    rng = np.random.default_rng(7)
    repeats, missed = 100, np.zeros((2, 2))
    for seed in range(repeats):
        for law, p in enumerate((skewed(rng, 120), np.full(120, 0.03))):
            wrong = rng.binomial(draws, p)
            expected = 1 - float(noise.h(p).mean()) if law else SKEWED[noise]
            here = lower_test_set(wrong, draws, noise, 0.9, seed)
            everywhere = lower_population(wrong, draws, noise, 0.9, seed)
            missed[law] += here > (1 - noise.h(p)).mean(), everywhere > expected
    assert missed.max() / repeats <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / repeats)


_LAW = stats.beta(0.5, 5).ppf((np.arange(100_000) + 0.5) / 100_000)
SKEWED = {noise: 1 - float(noise.h(_LAW).mean()) for noise in SMOOTH}
"""The expectation of 1 - h(p) over inputs of the law `skewed`."""


def test_where_inputs_differ_the_bounds_of_an_offset_are_near_the_truth() -> None:
    """Jensen over all inputs alone would lose 6 points here."""
    rng, noise = np.random.default_rng(8), Offset(1.0)
    p = skewed(rng, 600)
    wrong, exact = rng.binomial(500, p), 1 - float(noise.h(p).mean())
    jensen = 1 - float(noise.h(np.array(bound_pooled_failures(wrong, 500, 0.95))))
    assert jensen < exact - 0.06
    assert exact - 0.025 < lower_test_set(wrong, 500, noise, 0.95) < exact
    assert exact - 0.045 < lower_population(wrong, 500, noise, 0.95)
