"""Numbers read together: the lowest of several sources, bounds of nested sets, rows by slice."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nppr
from helpers import half_classifier, stated, two_class_data
from nppr.core.budget import Budget
from nppr.core.tally import Audit, Claim, Direction, Evaluate, Metric, Tally
from nppr.report.findings import headline_of, worst_slices
from nppr.report.number import BoundSubject, NoiseSubject, Number, StatedInterval
from nppr.report.page import render
from nppr.report.page.answer import run_text
from nppr.report.printed_numbers import Numbers
from nppr.report.quotes import sentence_of
from nppr.report.results_table import slices_table, summary_of, worst_words
from nppr.run.make_numbers import apply_supersets, correct_lowest
from nppr.sources import Bound, Source, Uniform, share_error
from nppr.statistics.betting import betting
from nppr.statistics.estimates import allow_for_audit, estimate_corrupted
from nppr.statistics.intervals import Interval, half_width
from nppr.statistics.lower_bounds import lower_test_set
from nppr.statistics.noise_sets import Contaminated
from nppr.statistics.shared_patterns import lower_shared

INPUTS, DRAWS = 400, 16


def tally(correct: list[int], draws: int = DRAWS) -> Tally[Evaluate]:
    count = len(correct)
    return Tally(
        kind=Evaluate,
        indices=np.arange(count),
        labels=np.zeros(count, dtype=np.int64),
        clean_correct=np.ones(count, bool),
        correct=np.array(correct),
        draws=draws,
        calls=count * draws,
        micro_batch=8,
    )


def row_of(name: str, made: Tally[Evaluate], metric: Metric = Metric.PR) -> Number:
    own = StatedInterval(low=0.0, high=1.0, method="normal", claim=Claim.POPULATION)
    return Number(
        subject=NoiseSubject(source=name), metric=metric, value=float(made.headline_rates.mean()),
        confidence=0.95, direction=Direction.ESTIMATE, tally=name, intervals=(own,),
    )  # fmt: skip


def lowest_of(*given: Any) -> tuple[Number, StatedInterval]:
    """The one number that got a corrected interval, and that interval."""
    (found,) = [
        (row, each) for row in correct_lowest(*given) for each in row.intervals if each.lowest_of
    ]
    return found


@pytest.mark.slow
def test_the_lowest_of_ten_equal_sources_is_missed_in_five_percent_not_twenty() -> None:
    """Homogeneous inputs, 400 of them: the worst case of choosing the lowest."""
    random, p, runs, sources = np.random.default_rng(5), 0.8, 150, 10
    missed = {"its own": 0, "corrected": 0}
    for _ in range(runs):
        counts = random.binomial(DRAWS, p, (sources, INPUTS))
        tallies = {f"s{at}": tally(row.tolist()) for at, row in enumerate(counts)}
        found, own = lowest_of([row_of(*each) for each in tallies.items()], tallies)
        assert own.lowest_of == sources
        x = tallies[found.source].headline_rates
        assert found.value == x.mean() == min(t.headline_rates.mean() for t in tallies.values())
        missed["its own"] += abs(x.mean() - p) > half_width(x, 0.95)
        missed["corrected"] += not own.low <= p <= own.high
    spread = 2 * math.sqrt(0.05 * 0.95 / runs)
    assert missed["its own"] / runs > 0.15
    assert missed["corrected"] / runs <= 0.05 + spread


def test_corruptions_and_stopped_runs_share_their_error_too() -> None:
    random = np.random.default_rng(1)
    tallies = {name: tally(random.binomial(1, 0.7, 80).tolist(), 1) for name in ("fog", "jpeg")}
    rows = [row_of(name, made, Metric.CORRUPTION) for name, made in tallies.items()]
    found, own = lowest_of(rows, tallies)
    exact = estimate_corrupted(tallies[found.source], 0.975)
    assert (own.low, own.high, found.confidence) == (exact.low, exact.high, 0.95)
    asked: list[int] = []

    def stopped(_: Tally[Evaluate], candidates: int) -> Interval:
        asked.append(candidates)
        return Interval(0.1, 0.9)

    noise = [row_of(name, made) for name, made in tallies.items()]
    _, own = lowest_of(noise, tallies, 0, stopped)
    assert (own.low, own.high, own.method, asked) == (0.1, 0.9, "betting-sequence", [2])
    assert correct_lowest(rows[:1], tallies) == rows[:1]


def test_the_headline_of_a_run_quotes_the_corrected_interval() -> None:
    report = nppr.assess(
        sources="gaussian,uniform,laplace", measure=nppr.Measure(inputs=60, draws=8)
    )
    first = headline_of(report)
    assert first is not None
    lowest, own = first.quoted, first.guaranteed
    assert lowest is not None
    assert own is not None
    assert (lowest.lowest_of, own.lowest_of) == (3, None)
    assert lowest.low < own.low
    quoted = Numbers(report).claim(first, lowest, kind=str)
    assert quoted in summary_of(report)
    assert quoted in run_text(report)
    assert "corrected for the choice of the lowest of 3" in sentence_of(
        Numbers(report), first, lowest
    )
    page = report.to_html()
    assert "corrected for the choice of the lowest of 3" in page
    alone = nppr.assess(sources="uniform", measure=nppr.Measure(inputs=60, draws=8))
    assert not any(each.lowest_of for row in alone.numbers for each in row.intervals)


def test_the_lowest_of_screened_sources_allows_for_the_audit() -> None:
    made = tally([15] * INPUTS)
    screened = replace(made, audit=Audit(0.1, INPUTS * DRAWS, 600))
    rows = [row_of(name, made) for name in ("uniform", "gaussian")]
    exact, wider = (
        lowest_of(rows, dict.fromkeys(("uniform", "gaussian"), each))[1]
        for each in (made, screened)
    )
    allowed = allow_for_audit(screened, 0.975)
    assert wider.low <= exact.low - allowed.of_mean(INPUTS)


BUDGET = Budget.linf(0.3)
OWN = Bound(BUDGET, ratio="2+10")
BLIND = Bound(BUDGET, ratio="2+10", patterns=64)


def row(source: Source, c: float, *values: float) -> Number:
    """The bound for this test set, and for the population if there are two values."""
    method, own = "exact" if source is OWN else "betting", source is OWN
    return Number(
        subject=BoundSubject(
            source=source.name, noise_set="ratio", density_ratio=c, sees_input=own
        ),
        metric=Metric.BOUND,
        direction=Direction.LOWER_BOUND,
        confidence=0.95,
        value=values[0],
        intervals=tuple(
            StatedInterval(low=value, high=1.0, method=method, claim=claim)
            for value, claim in zip(values, (Claim.TEST_SET, Claim.POPULATION), strict=False)
        ),
    )


def test_bounds_of_the_same_sets_share_the_error() -> None:
    own, blind, other, noise = share_error(
        [OWN, BLIND, Bound(BUDGET, ratio="5", patterns=9), Uniform(BUDGET)]
    )
    assert isinstance(own, Bound)
    assert isinstance(blind, Bound)
    assert isinstance(other, Bound)
    assert (own.beside, blind.beside, other.beside) == (BLIND, OWN, None)
    assert (own.superset, blind.superset) == ("", OWN.name)
    assert (own.name, blind.name, noise) == (OWN.name, BLIND.name, Uniform(BUDGET))


def test_the_larger_bound_is_printed_where_it_holds() -> None:
    rows = [
        row(OWN, 2, 0.9), row(OWN, 10, 0.5), row(BLIND, 2, 0.8, 0.7), row(BLIND, 10, 0.6),
    ]  # fmt: skip
    found = apply_supersets(rows, share_error([OWN, BLIND]))
    assert [each.value for each in found] == [0.9, 0.5, 0.9, 0.6]
    assert [[each.low for each in row.intervals] for row in found] == [
        [0.9],
        [0.5],
        [0.9, 0.7],
        [0.6],
    ]
    assert found[2].bound is not None
    assert found[2].bound.sees_input is False
    assert stated(found[2]).method == "exact"
    assert apply_supersets(rows, [OWN, BLIND]) == rows, "each with the whole error"


def test_of_sets_that_keep_a_value_the_larger_one_is_printed() -> None:
    sources = [Bound(BUDGET, least=0.6), Bound(BUDGET, least=0.6, patterns=64)]
    for sees, blind, shown in ((4.0, 2.0, 4.0), (2.0, 4.0, 4.0)):
        rows = [row(each, c, 0.6) for each, c in zip(sources, (sees, blind), strict=True)]
        found = apply_supersets(rows, share_error(sources))
        assert [each.bound and each.bound.density_ratio for each in found] == [sees, shown]


@pytest.mark.slow
def test_both_bounds_and_the_larger_of_them_hold_together() -> None:
    """Each pattern breaks the inputs below its number: the worst noise of either kind is known."""
    rng, n, repeats, error, noise = np.random.default_rng(0), 60, 300, 0.1, Contaminated(2.0)
    latent = (np.arange(n) + 0.5) / n
    share = 1 - error / 2
    missed = 0
    for seed in range(repeats):
        # A pattern has a number z = 0.6 u^2: input i fails if z exceeds its own, w.p. p_i.
        p = 1 - np.sqrt(np.minimum(1, latent / 0.6))
        sees = 1 - noise.h(p).mean()
        worst = (np.searchsorted(latent, 0.6 * (1 - np.arange(5000) / 10_000) ** 2) / n).mean()
        patterns = np.searchsorted(latent, 0.6 * rng.random(200) ** 2) / n
        own = lower_test_set(rng.binomial(30, p), 30, noise, share, seed)
        blind = max(own, lower_shared(patterns, noise, share, seed))
        missed += own > sees or blind > 1 - worst
    assert missed / repeats <= error + 2 * math.sqrt(error * (1 - error) / repeats)


def sliced() -> nppr.Report:
    data = two_class_data(200)
    sites = ["near" if at % 4 else "far & <away>" for at in range(200)]
    return nppr.assess(
        half_classifier(),
        replace(data, slices={"site": sites}),
        budget=nppr.Budget.linf(0.3),
        sources="uniform",
        measure=nppr.Measure(draws=8),
        run=nppr.Run(batch_size=64),
    )


def test_a_slice_is_read_off_the_lines_of_its_inputs() -> None:
    report = sliced()
    lines = report.per_input.of("uniform")
    rows = {row.name: row for row in report.slices if row.column == "site"}
    assert set(rows) == {"near", "far & <away>"}
    own = (lines["index"] % 4 == 0) & (lines["clean_correct"] == 1)
    rates = (lines["correct"] / lines["draws"])[own]
    far = rows["far & <away>"]
    assert far.value == pytest.approx(rates.mean())
    assert far.inputs == own.sum()
    together = betting(rates, 1 - 0.05 / 2, report.seed)
    assert (far.low, far.high) == (together.low, together.high)
    classes = [row for row in report.slices if row.column == "class"]
    assert sum(row.inputs for row in classes) == (lines["clean_correct"] == 1).sum()
    assert [row.value for row in classes] == sorted(row.value for row in classes)


def test_the_worst_slice_is_named_on_page_and_table() -> None:
    report = sliced()
    worst = worst_slices(report)["site"]
    assert worst.value == min(row.value for row in report.slices if row.column == "site")
    assert f"site {worst.name}" in worst_words(report)
    assert worst_words(report) in report.table()
    page = render(report)
    assert 'id="slice-table"' in page
    assert "far & <away>" not in page
    table = slices_table(report)
    assert [row[0].value for row in table.rows] == ["site", "site"]
    assert np.isclose(float(str(table.rows[0][2].value)), worst.value)
    without = report.model_copy(update={"slices": ()})
    assert 'id="slice-table"' not in render(without)
    assert worst_words(without) == ""
