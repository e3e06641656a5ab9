"""Anytime-valid statements: errors at any look, and how many draws a verdict takes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from nppr.core.tally import BoolArray, FloatArray, IntArray
from nppr.errors import SpecError
from nppr.statistics.intervals import clopper_pearson
from nppr.statistics.sequential import (
    BernoulliTest,
    Verdict,
    mixture_sequence,
    one_sided_bound,
    one_sided_evidence,
)


def paths(p: float, repeats: int, draws: int, seed: int = 0) -> IntArray:
    """Correct draws so far, `(repeats, draws)`."""
    correct: IntArray = np.cumsum(np.random.default_rng(seed).random((repeats, draws)) < p, axis=1)
    return correct


def decided(
    correct: IntArray,
    at_least: float,
    confidence: float,
    above: bool,
    draws: IntArray | None = None,
) -> BoolArray:
    """Whether the evidence suffices, at every draw unless other looks are given."""
    draws = np.arange(1, correct.shape[1] + 1) if draws is None else draws
    evidence = one_sided_evidence(correct, draws - correct, at_least, above)
    return np.asarray(evidence >= math.log(1 / (1 - confidence)) + 1e-6)


def first(reached: BoolArray) -> FloatArray:
    """Draws taken until it is reached, infinite if never."""
    return np.where(reached.any(1), reached.argmax(1) + 1.0, math.inf)


def slack(share: float, repeats: int) -> float:
    return 3 * math.sqrt(share * (1 - share) / repeats)


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.01, 0.5, 0.9])
def test_the_mixture_sequence_holds_at_all_looks_and_clopper_pearson_does_not(p: float) -> None:
    repeats = 1000
    draws = np.unique(np.geomspace(10, 5000, 200).astype(np.int64))
    correct = paths(p, repeats, 5000)[:, draws - 1]
    low, high = mixture_sequence(correct, draws, 0.95)
    assert np.mean(((low > p) | (high < p)).any(1)) <= 0.05 + slack(0.05, repeats)
    low, high = clopper_pearson(correct, draws, 0.95)
    assert np.mean(((low > p) | (high < p)).any(1)) > 0.1


def test_the_ends_of_the_mixture_sequence_by_integration() -> None:
    """At an end, the mean likelihood over Beta(a, b) is 20 times its likelihood."""
    for correct, draws, a, b in ((7, 30, 0.5, 0.5), (29, 30, 2.0, 1.0), (15, 30, 1.0, 1.0)):
        mean, _ = integrate.quad(
            lambda q, r=correct, n=draws, a=a, b=b: (
                stats.binom.pmf(r, n, q) * stats.beta.pdf(q, a, b)
            ),
            0,
            1,
        )
        for end in mixture_sequence(np.array([correct]), draws, 0.95, a, b)[:, 0]:
            assert mean / stats.binom.pmf(correct, draws, end) == pytest.approx(20, rel=1e-4)


def test_the_uniform_mixture_after_no_failure_has_a_closed_form() -> None:
    low, high = mixture_sequence(np.array([40]), 40, 0.95, 1.0, 1.0)
    assert float(low[0]) == pytest.approx((0.05 / 41) ** (1 / 40), rel=1e-6)
    assert float(high[0]) == 1.0


@given(st.integers(1, 5000), st.data())
def test_the_mixture_sequence_grows_with_the_count(draws: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, draws - 1))
    confidence = data.draw(st.floats(0.5, 0.999))
    correct = np.array([at, at + 1])
    low, high = mixture_sequence(correct, draws, confidence)
    assert low[0] <= low[1]
    assert high[0] <= high[1]
    assert np.all((low >= 0) & (low <= correct / draws) & (correct / draws <= high) & (high <= 1))
    exact = clopper_pearson(correct, draws, confidence)
    assert np.all(high - low >= exact[1] - exact[0] - 1e-9)


def test_many_looks_are_as_one() -> None:
    correct, draws = np.array([0, 0, 3, 90]), np.array([0, 9, 9, 100])
    together = mixture_sequence(correct, draws, 0.9)
    for i in range(4):
        assert np.array_equal(together[:, [i]], mixture_sequence(correct[[i]], int(draws[i]), 0.9))


@pytest.mark.parametrize("above", [True, False])
def test_evidence_by_integration(above: bool) -> None:
    correct, wrong, t = 12, 5, 0.7
    low, high = (t, 1.0) if above else (0.0, t)
    prior = stats.beta(1.0, 0.5)
    top, _ = integrate.quad(
        lambda q: (q / t) ** correct * ((1 - q) / (1 - t)) ** wrong * prior.pdf(q), low, high
    )
    mean = top / (prior.cdf(high) - prior.cdf(low))
    assert math.exp(float(one_sided_evidence(correct, wrong, t, above))) == pytest.approx(mean)


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("t", [0.3, 0.9])
def test_expected_evidence_is_at_most_1_under_the_whole_hypothesis(t: float, above: bool) -> None:
    """After 30 draws, summed over all outcomes; exactly 1 at the boundary, above 1 beyond it."""
    correct = np.arange(31)
    evidence = np.exp(one_sided_evidence(correct, 30 - correct, t, above))

    def expected(p: float) -> float:
        return float((stats.binom.pmf(correct, 30, p) * evidence).sum())

    assert expected(t) == pytest.approx(1)
    side = np.linspace(0, t, 20) if above else np.linspace(t, 1, 20)
    assert max(expected(float(p)) for p in side) <= 1 + 1e-9
    assert expected(0.5 * (t + above)) > 1


@pytest.mark.slow
@pytest.mark.parametrize("at_least", [0.5, 0.9, 0.99])
def test_false_verdicts_are_rare_at_any_of_many_looks(at_least: float) -> None:
    repeats = 1000
    looks = np.unique(np.geomspace(1, 5000, 150).astype(np.int64))
    correct = paths(at_least - 0.001, repeats, 5000)[:, looks - 1]
    below = decided(correct, at_least, 0.95, above=True, draws=looks)
    assert below.any(1).mean() <= 0.05 + slack(0.05, repeats)
    correct = paths(at_least, repeats, 5000, 1)[:, looks - 1]
    at = decided(correct, at_least, 0.95, above=False, draws=looks)
    assert at.any(1).mean() <= 0.05 + slack(0.05, repeats)


@pytest.mark.slow
def test_a_verdict_takes_a_fraction_of_the_draws_of_others() -> None:
    """PR 0.99 against 0.9: PRoA's adaptive Hoeffding test, and the best test of a fixed size."""
    correct = paths(0.99, 500, 1500, 2)
    draws = np.arange(1, 1501)
    bound = np.sqrt((0.6 * np.log(np.log(draws) / np.log(1.1) + 1) + math.log(480) / 1.8) / draws)
    proa = float(np.median(first(np.abs(correct / draws - 0.9) > bound)))
    fixed = next(
        n for n in range(1, 1000) if stats.binom.sf(stats.binom.isf(0.05, n, 0.9), n, 0.99) >= 0.95
    )
    ours = float(np.median(first(decided(correct[:, :300], 0.9, 0.95, above=True))))
    assert proa < math.inf
    assert ours <= proa / 5
    assert ours <= 2 * fixed


@pytest.mark.parametrize(
    ("p", "verdict"), [(0.99, Verdict.HOLDS), (0.8, Verdict.VIOLATED), (0.9, Verdict.UNDECIDED)]
)
def test_the_bernoulli_test_gives_the_verdict_of_its_evidence(p: float, verdict: Verdict) -> None:
    correct = paths(p, 1, 400, 5)[0]
    reached = {
        Verdict.HOLDS: first(decided(correct[None], 0.9, 0.95, above=True))[0],
        Verdict.VIOLATED: first(decided(correct[None], 0.9, 0.95, above=False))[0],
    }
    test = BernoulliTest(0.9, 0.95)
    said = [test.update(int(step), 1) for step in np.diff(correct, prepend=0)]
    first_at = said.index(verdict)
    assert set(said[:first_at]) <= {Verdict.UNDECIDED}
    assert set(said[first_at:]) == {verdict}
    assert first_at + 1 == reached.get(verdict, 1)
    assert (test.correct, test.draws) == (correct[-1], 400)


def test_a_verdict_stays() -> None:
    test = BernoulliTest(0.9, 0.95)
    assert test.update(100, 100) is Verdict.HOLDS
    assert test.update(0, 1000) is Verdict.HOLDS


@pytest.mark.parametrize(("truth", "verdict"), [(0.95, Verdict.HOLDS), (0.8, Verdict.VIOLATED)])
def test_millions_of_draws_do_not_overflow(truth: float, verdict: Verdict) -> None:
    assert BernoulliTest(0.9, 0.95).update(round(truth * 10**7), 10**7) is verdict


@settings(max_examples=50)
@given(st.floats(0.05, 0.95), st.integers(1, 300), st.data())
def test_evidence_grows_with_the_count(t: float, draws: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, draws - 1))
    correct = np.array([at, at + 1])
    holds = one_sided_evidence(correct, draws - correct, t, above=True)
    violated = one_sided_evidence(correct, draws - correct, t, above=False)
    assert holds[0] <= holds[1] + 1e-9
    assert violated[0] >= violated[1] - 1e-9
    assert np.all(np.minimum(holds, violated) <= 1e-9)


@pytest.mark.parametrize("at_least", [0.0, 1.0, 1.5])
def test_bad_limits_are_named(at_least: float) -> None:
    with pytest.raises(SpecError, match="`at_least`"):
        BernoulliTest(at_least, 0.95)


def test_bad_counts_and_numbers_are_named() -> None:
    with pytest.raises(SpecError, match="`successes`"):
        BernoulliTest(0.9, 0.95).update(3, 2)
    with pytest.raises(SpecError, match="`confidence`"):
        BernoulliTest(0.9, 1.0)


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize(("correct", "draws"), [(0, 5), (1, 1), (30, 40), (63, 64), (299, 300)])
def test_the_one_sided_bound_is_where_the_evidence_suffices(
    correct: int, draws: int, above: bool
) -> None:
    """Against all values on its one side and none on the other, so verdict and bound agree."""
    bound = one_sided_bound(correct, draws - correct, 0.95, above=above)
    decided_by: set[float | None] = {bound}
    for at_least in np.linspace(0.001, 0.999, 300):
        evidence = one_sided_evidence(correct, draws - correct, float(at_least), above)
        shown = bool(evidence >= math.log(20) + 1e-6)
        assert shown == bool(at_least < bound if above else at_least > bound)
        test = BernoulliTest(float(at_least), 0.95)
        verdict = test.update(correct, draws)
        assert (verdict is (Verdict.HOLDS if above else Verdict.VIOLATED)) == shown
        decided_by |= {test.bound} if shown else set()
    assert decided_by == {bound}
