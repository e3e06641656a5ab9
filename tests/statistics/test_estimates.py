from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from nppr.core.tally import Claim, Direction, Evaluate, Fit, Metric, Tally
from nppr.errors import SpecError, SplitError
from nppr.statistics.estimates import (
    APPROXIMATE,
    GAMMAS,
    UNRESOLVED,
    estimate_accuracy,
    estimate_adversarial,
    estimate_corrupted,
    estimate_normalised,
    estimate_per_input,
    estimate_prob_acc,
    estimate_probabilistic,
    estimate_stress,
    merge_attacks,
)


def tally(correct: list[int], clean: list[bool], draws: int = 10) -> Tally[Evaluate]:
    return Tally(
        kind=Evaluate,
        indices=np.arange(len(correct)),
        labels=np.zeros(len(correct), np.int64),
        clean_correct=np.array(clean),
        correct=np.array(correct),
        draws=draws,
        calls=len(correct) * draws,
        micro_batch=8,
    )


KNOWN = tally([10, 5, 0, 10, 2], [True, True, True, True, False])


def test_pr_counts_clean_correct_inputs_only() -> None:
    rows = estimate_probabilistic(KNOWN, 0.95)
    methods = [row.method for row in rows]
    assert methods == ["normal", "bootstrap", "empirical-bernstein", "betting", "hoeffding"]
    for row in rows:
        assert row.metric is Metric.PR
        assert row.value == pytest.approx(2.5 / 4)
        assert row.low <= row.value <= row.high
        assert (row.inputs, row.draws, row.calls) == (4, 10, 50)
        test_set = row.method == "hoeffding"
        assert row.claim is (Claim.TEST_SET if test_set else Claim.POPULATION)
        assert row.direction is Direction.ESTIMATE
        assert row.split == "evaluate"
        assert row.confidence == 0.95


def test_nppr_is_an_upper_bound() -> None:
    row = estimate_probabilistic(KNOWN, 0.95, Metric.NPPR)[0]
    assert row.metric is Metric.NPPR
    assert row.direction is Direction.UPPER_BOUND


def test_ar_is_the_share_nothing_broke() -> None:
    row = estimate_adversarial(KNOWN, 0.95)
    assert row.value == 0.5
    assert row.method == "clopper-pearson"
    assert row.direction is Direction.UPPER_BOUND


def test_accuracy_counts_all_inputs() -> None:
    row = estimate_accuracy(tally([1, 1, 0, 1], [True] * 4, draws=1), 0.95)
    assert (row.metric, row.value, row.inputs) == (Metric.ACCURACY, 0.75, 4)


def test_normalised_counts_all_inputs_over_clean_accuracy() -> None:
    row = estimate_normalised(KNOWN, 0.95)
    assert row.value == pytest.approx((2.7 / 5) / (4 / 5))
    assert row.inputs == 5
    assert row.direction is Direction.ESTIMATE
    assert estimate_normalised(KNOWN, 0.95, Metric.AR).direction is Direction.UPPER_BOUND
    above = estimate_normalised(tally([10, 10, 10], [True, True, False]), 0.95)
    assert above.value == pytest.approx(1.5)
    assert above.high >= 1.5


def test_per_input_is_exact() -> None:
    low, high = estimate_per_input(KNOWN, 0.95)
    assert high[0] == 1.0
    assert low[2] == 0.0
    assert low[1] == pytest.approx(0.187, abs=1e-3)


def test_merged_ar_is_at_most_every_pr_and_ar() -> None:
    rng = np.random.default_rng(0)
    clean = (rng.random(200) < 0.9).tolist()
    tallies = [
        tally(rng.binomial(10, rng.beta(4, 0.5, 200)).tolist(), clean),
        tally(rng.binomial(1, 0.6, 200).tolist(), clean, draws=1),
    ]
    value = estimate_adversarial(merge_attacks(tallies), 0.95).value
    assert value <= min(estimate_adversarial(t, 0.95).value for t in tallies)
    assert value <= min(estimate_probabilistic(t, 0.95)[0].value for t in tallies)
    assert merge_attacks(tallies).calls == 2200
    with pytest.raises(SplitError, match="same inputs"):
        merge_attacks([tallies[0], replace(tallies[1], indices=np.arange(200) + 1)])


def test_tallies_of_other_splits_cannot_be_reported() -> None:
    other = replace(KNOWN, kind=Fit)  # type: ignore[arg-type]
    for read in (
        estimate_accuracy,
        estimate_adversarial,
        estimate_probabilistic,
        estimate_normalised,
        estimate_per_input,
    ):
        with pytest.raises(SplitError, match="'fit'"):
            read(other, 0.95)
    with pytest.raises(SplitError):
        merge_attacks([other])


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, 2.0, float("nan")])
def test_bad_confidence_is_named(confidence: float) -> None:
    for read in (
        estimate_accuracy,
        estimate_adversarial,
        estimate_probabilistic,
        estimate_normalised,
        estimate_per_input,
    ):
        with pytest.raises(SpecError, match="`confidence`"):
            read(KNOWN, confidence)


def test_no_clean_correct_input_is_named() -> None:
    none = tally([5, 5], [False, False])
    for read in (estimate_adversarial, estimate_probabilistic, estimate_normalised):
        with pytest.raises(SpecError, match="at least one clean-correct input"):
            read(none, 0.95)


def test_approximate_intervals_outside_their_regime_are_flagged() -> None:
    inside = tally([5] * 400, [True] * 400)
    assert all(row.flags == () for row in estimate_probabilistic(inside, 0.95))
    few = tally([5] * 399, [True] * 399)
    extreme = tally([10] * 400, [True] * 400)
    for outside, confidence in ((few, 0.95), (extreme, 0.95), (inside, 0.9999)):
        flags = {row.method: row.flags for row in estimate_probabilistic(outside, confidence)}
        assert flags["normal"] == flags["bootstrap"] == (APPROXIMATE,)
        assert flags["empirical-bernstein"] == flags["betting"] == flags["hoeffding"] == ()
        assert estimate_normalised(outside, confidence).flags == (APPROXIMATE,)


def test_corrupted_is_the_exact_share_of_clean_correct_inputs() -> None:
    once = tally([1, 0, 1, 1, 1], [True, True, True, True, False], draws=1)
    row = estimate_corrupted(once, 0.9)
    exact = stats.binomtest(3, 4).proportion_ci(0.9, method="exact")
    assert row.value == 0.75
    assert (row.low, row.high) == pytest.approx((exact.low, exact.high))
    assert (row.metric, row.method) == (Metric.CORRUPTION, "clopper-pearson")
    assert row.direction is Direction.ESTIMATE
    assert row.claim is Claim.POPULATION
    assert (row.inputs, row.draws, row.calls) == (4, 1, 5)
    with pytest.raises(SpecError, match="at least one clean-correct input"):
        estimate_corrupted(tally([1], [False], draws=1), 0.9)
    with pytest.raises(SplitError, match="'fit'"):
        estimate_corrupted(replace(once, kind=Fit), 0.9)  # type: ignore[arg-type]


def of_losses(inputs: int) -> Tally[Evaluate]:
    return tally([3] * inputs, [i % 2 == 0 for i in range(inputs)])


def test_stressed_is_the_mean_over_all_inputs_and_its_ratio() -> None:
    rng = np.random.default_rng(0)
    losses, standard = rng.gamma(2.0, 1.5, 200), rng.gamma(2.0, 0.5, 200)
    raw, ratio = estimate_stress(of_losses(200), losses, standard, 0.95)
    assert (raw.metric, ratio.metric) == (Metric.STRESS, Metric.NORMALISED_STRESS)
    assert raw.value == pytest.approx(losses.mean())
    assert ratio.value == pytest.approx(losses.mean() / standard.mean())
    assert (raw.method, ratio.method) == ("bootstrap", "paired-bootstrap")
    for row in (raw, ratio):
        assert row.low < row.value < row.high
        assert (row.inputs, row.draws, row.calls) == (200, 10, 2000)
        assert row.claim is Claim.POPULATION
        assert row.direction is Direction.ESTIMATE
    # As wide as plus and minus 1.96 standard errors.
    half = 1.96 * losses.std() / np.sqrt(200)
    assert raw.high - raw.low == pytest.approx(2 * half, rel=0.1)
    narrow = estimate_stress(of_losses(200), losses, standard, 0.5)[0]
    assert raw.low < narrow.low < narrow.high < raw.high


def test_the_ratio_of_stress_is_paired() -> None:
    """Twice the loss of every input is twice as much in every resample."""
    standard = np.random.default_rng(1).gamma(1.0, 1.0, 50)
    _, ratio = estimate_stress(of_losses(50), 2 * standard, standard, 0.95)
    assert (ratio.low, ratio.value, ratio.high) == pytest.approx((2, 2, 2))


def test_stress_is_seeded_and_survives_losses_of_zero() -> None:
    losses = np.random.default_rng(2).random(40)
    standard = np.full(40, 0.5)
    first, again, other = (
        estimate_stress(of_losses(40), losses, standard, 0.9, seed)[0] for seed in (0, 0, 1)
    )
    assert first == again
    assert (first.low, first.high) != (other.low, other.high)
    rows = estimate_stress(of_losses(40), losses, np.zeros(40), 0.9)
    assert rows
    for row in rows:
        assert np.isfinite([row.low, row.value, row.high]).all()


def test_bad_readings_of_stress_are_named() -> None:
    ones = np.ones(5)
    with pytest.raises(SpecError, match="`confidence`"):
        estimate_stress(KNOWN, ones, ones, 1.0)
    with pytest.raises(SplitError, match="'fit'"):
        estimate_stress(replace(KNOWN, kind=Fit), ones, ones, 0.95)  # type: ignore[arg-type]


@pytest.mark.parametrize("draws", [20, 100, 300, 1000])
def test_prob_acc_is_the_share_strictly_above_1_minus_gamma(draws: int) -> None:
    """Inputs correct in 100, 99, 95, 90, 80 and 0 % of the draws, all but one counted."""
    correct = [draws * percent // 100 for percent in (100, 99, 95, 90, 80, 0, 100)]
    rows = estimate_prob_acc(tally(correct, [True] * 6 + [False], draws), 0.95)
    assert [row.gamma for row in rows] == list(GAMMAS) == [0.2, 0.1, 0.05, 0.01]
    exact = draws >= 100  # 19 of 20 draws are no 99 %
    assert [row.value for row in rows] == pytest.approx(
        [4 / 6, 3 / 6, (2 if exact else 1) / 6, 1 / 6]
    )
    for row in rows:
        assert (row.metric, row.method) == (Metric.PROB_ACC, "clopper-pearson")
        assert (row.inputs, row.draws, row.calls) == (6, draws, 7 * draws)
        assert row.claim is Claim.POPULATION


def test_prob_acc_of_one_more_correct_draw_counts() -> None:
    """81 of 100 draws are above 80 %, 80 are not."""
    for correct, value in ((80, 0.0), (81, 1.0)):
        assert estimate_prob_acc(tally([correct], [True], 100), 0.95)[0].value == value


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_prob_acc_has_the_exact_interval_over_inputs(confidence: float) -> None:
    rows = estimate_prob_acc(tally([10] * 30 + [9] * 7 + [0] * 3, [True] * 40), confidence)
    for row, above in zip(rows, (37, 30, 30, 30), strict=True):
        exact = stats.binomtest(above, 40).proportion_ci(confidence, method="exact")
        assert row.value == above / 40
        assert (row.low, row.high) == pytest.approx((exact.low, exact.high))
        assert row.confidence == confidence


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_prob_acc_is_flagged_where_no_failure_shows_too_little(confidence: float) -> None:
    """Where the exact lower bound of an input that never failed is not above 1 - gamma."""
    for draws in (*range(1, 120), 200, 229, 230, 298, 299, 458, 459):
        shown = (1 - confidence) ** (1 / draws)
        rows = estimate_prob_acc(tally([draws], [True], draws), confidence)
        assert len(rows) == len(GAMMAS)
        for row in rows:
            assert row.gamma is not None
            assert row.flags == (() if shown >= 1 - row.gamma else (UNRESOLVED,))


def test_59_draws_resolve_gamma_of_5_percent() -> None:
    flags = {
        draws: [row.flags for row in estimate_prob_acc(tally([draws], [True], draws), 0.95)]
        for draws in (58, 59)
    }
    assert flags == {58: [(), (), (UNRESOLVED,), (UNRESOLVED,)], 59: [(), (), (), (UNRESOLVED,)]}


@pytest.mark.parametrize(
    ("metric", "direction"),
    [(Metric.PR, Direction.ESTIMATE), (Metric.NPPR, Direction.UPPER_BOUND)],
)
def test_prob_acc_of_a_search_is_an_upper_bound(metric: Metric, direction: Direction) -> None:
    assert {row.direction for row in estimate_prob_acc(KNOWN, 0.95, metric)} == {direction}


def test_bad_readings_of_prob_acc_are_named() -> None:
    with pytest.raises(SpecError, match="`confidence`"):
        estimate_prob_acc(KNOWN, 1.0)
    with pytest.raises(SplitError, match="'fit'"):
        estimate_prob_acc(replace(KNOWN, kind=Fit), 0.95)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="at least one clean-correct input"):
        estimate_prob_acc(tally([5, 5], [False, False]), 0.95)
