"""The interval of the lowest of several sources holds although it was chosen for being the lowest."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nppr
from nppr.core.tally import Audit, Claim, Direction, Evaluate, Metric, Tally
from nppr.report.findings import headline_of
from nppr.report.number import NoiseSubject, Number, StatedInterval
from nppr.report.page.answer import run_text
from nppr.report.printed_numbers import Numbers
from nppr.report.quotes import sentence_of
from nppr.report.results_table import summary_of
from nppr.run.lowest_numbers import correct_lowest
from nppr.statistics.estimates import allow_for_audit, estimate_corrupted
from nppr.statistics.intervals import Interval, half_width

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
