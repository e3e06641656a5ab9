"""The interval of the lowest of several sources holds although it was chosen for being the lowest."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import nppr
from nppr.core.tally import Audit, Direction, Evaluate, Metric, Tally
from nppr.report.findings import as_lowest, guaranteed, headline_of
from nppr.report.model import Result
from nppr.report.numbers import Numbers
from nppr.report.page.answer import run_text
from nppr.report.quotes import sentence_of
from nppr.report.results_table import summary_of
from nppr.run.lowest_rows import lowest_rows
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


def row_of(name: str, made: Tally[Evaluate], metric: Metric = Metric.PR) -> Result:
    return Result(
        source=name, metric=metric, value=float(made.headline_rates.mean()), low=0.0, high=1.0,
        confidence=0.95, method="normal", direction=Direction.ESTIMATE, tally=name,
    )  # fmt: skip


@pytest.mark.slow
def test_the_lowest_of_ten_equal_sources_is_missed_in_five_percent_not_twenty() -> None:
    """Homogeneous inputs, 400 of them: the worst case of choosing the lowest."""
    random, p, runs, sources = np.random.default_rng(5), 0.8, 150, 10
    missed = {"its own": 0, "corrected": 0}
    for _ in range(runs):
        counts = random.binomial(DRAWS, p, (sources, INPUTS))
        tallies = {f"s{at}": tally(row.tolist()) for at, row in enumerate(counts)}
        (found,) = lowest_rows([row_of(*each) for each in tallies.items()], tallies)
        assert found.lowest_of == sources
        x = tallies[found.source].headline_rates
        assert found.value == x.mean() == min(t.headline_rates.mean() for t in tallies.values())
        missed["its own"] += abs(x.mean() - p) > half_width(x, 0.95)
        assert found.low is not None
        assert found.high is not None
        missed["corrected"] += not found.low <= p <= found.high
    spread = 2 * math.sqrt(0.05 * 0.95 / runs)
    assert missed["its own"] / runs > 0.15
    assert missed["corrected"] / runs <= 0.05 + spread


def test_corruptions_and_stopped_runs_share_their_error_too() -> None:
    random = np.random.default_rng(1)
    tallies = {name: tally(random.binomial(1, 0.7, 80).tolist(), 1) for name in ("fog", "jpeg")}
    rows = [row_of(name, made, Metric.CORRUPTION) for name, made in tallies.items()]
    (found,) = lowest_rows(rows, tallies)
    exact = estimate_corrupted(tallies[found.source], 0.975)
    assert (found.low, found.high, found.confidence) == (exact.low, exact.high, 0.95)
    asked: list[int] = []

    def stopped(_: Tally[Evaluate], candidates: int) -> Interval:
        asked.append(candidates)
        return Interval(0.1, 0.9)

    noise = [row_of(name, made) for name, made in tallies.items()]
    (found,) = lowest_rows(noise, tallies, 0, stopped)
    assert (found.low, found.high, found.method, asked) == (0.1, 0.9, "betting-sequence", [2])
    assert lowest_rows(rows[:1], tallies) == []


def test_the_headline_of_a_run_quotes_the_corrected_interval() -> None:
    report = nppr.assess(
        sources="gaussian,uniform,laplace", measure=nppr.Measure(inputs=60, draws=8)
    )
    first = headline_of(report)
    assert first is not None
    lowest = as_lowest(report, first)
    assert (lowest.lowest_of, lowest.name, lowest.value) == (3, first.name, first.value)
    own = guaranteed(report, first)
    assert own is not None
    assert own.lowest_of is None
    assert lowest.low < own.low  # type: ignore[operator]
    quoted = Numbers(report).claim(lowest, kind=str)
    assert quoted in summary_of(report)
    assert quoted in run_text(report)
    assert "corrected for the choice of the lowest of 3" in sentence_of(Numbers(report), lowest)
    page = report.to_html()
    assert "corrected for the choice of the lowest of 3" in page
    alone = nppr.assess(sources="uniform", measure=nppr.Measure(inputs=60, draws=8))
    assert not any(row.lowest_of for row in alone.results)


def test_the_lowest_of_screened_sources_allows_for_the_audit() -> None:
    made = tally([15] * INPUTS)
    screened = replace(made, audit=Audit(0.1, INPUTS * DRAWS, 600))
    rows = [row_of(name, made) for name in ("uniform", "gaussian")]
    exact, wider = (
        lowest_rows(rows, dict.fromkeys(("uniform", "gaussian"), each))[0]
        for each in (made, screened)
    )
    allowed = allow_for_audit(screened, 0.975)
    assert exact.low is not None
    assert wider.low is not None
    assert wider.low <= exact.low - allowed.of_mean(INPUTS)
