"""What a comparison says first: the number of the runs' own pages, with the interval to trust."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from compare.runs import Measured, a_run
from nppr.compare import compare
from nppr.compare.wording import answer
from nppr.report.folder import RunFiles
from nppr.report.page.headline import headline_of
from nppr.report.schema import WITH_REFERENCES
from nppr.tally import Metric

N = 500


def learned(name: str, means: dict[str, float], winner: str = "family") -> RunFiles:
    """A run with learned noise of two floors and one fixed noise, with about these means."""
    rng = np.random.default_rng(len(name))
    sources = {
        source: Measured(
            Metric.PR if source == "gaussian" else Metric.NPPR, rng.binomial(16, mean, N), 16
        )
        for source, mean in means.items()
    }
    run = a_run(name, np.ones(N, np.bool_), sources, classifier=name)
    made: list[dict[str, Any]] = [
        {
            "source": source, "family": {"floor": floor},
            "fit": {"with_references": {"winner": winner}},
        }
        for source, floor in (("nppr", 0.0), ("nppr:floor=0.5", 0.5))
    ]  # fmt: skip
    together = [
        row.model_copy(update={"source": source + WITH_REFERENCES, "metric": Metric.NPPR})
        for source in ("nppr", "nppr:floor=0.5")
        for row in run.report.results
        if row.source == (source if winner == "family" else winner)
        and row.metric in (Metric.PR, Metric.NPPR)
    ]
    results = (*run.report.results, *together)
    report = run.report.model_copy(update={"results": results, "distributions": tuple(made)})
    return replace(run, report=report)


@pytest.mark.parametrize("winner", ["family", "gaussian"])
def test_the_answer_is_that_of_the_runs_pages(winner: str) -> None:
    means = {"gaussian": 0.45, "nppr": 0.5, "nppr:floor=0.5": 0.3}
    runs = [learned(name, means, winner) for name in ("a", "bb")]
    comparison = compare(runs)
    first = next(result for result in comparison.results if result.metric is Metric.NPPR)
    for run, standing in zip(runs, first.standings, strict=True):
        row = headline_of(run.report).row
        assert row is not None
        assert first.source == row.source
        assert standing.value == row.value
    assert f"({first.source})" in answer(comparison)
    order = [each.source for each in comparison.results if each.metric is Metric.NPPR]
    assert [source.startswith("nppr:floor=0.5") for source in order] == sorted(
        source.startswith("nppr:floor=0.5") for source in order
    )


def test_an_untested_interval_of_a_difference_is_not_quoted() -> None:
    right = {"a": np.full(40, 16), "b": np.full(40, 16)}
    runs = [
        a_run(name, np.ones(40, np.bool_), {"uniform": Measured(Metric.PR, each, 16)},
              classifier=name)
        for name, each in right.items()
    ]  # fmt: skip
    comparison = compare(runs)
    compared = comparison.of("uniform", Metric.PR)
    assert compared is not None
    found = compared.differences[0]
    assert found.flags
    assert found.guaranteed_high is not None
    assert found.guaranteed_high > 0.01
    low = -found.guaranteed_high
    text = answer(comparison)
    assert f"0.0 points ({100 * low:.1f} to " in text
    assert ", guaranteed) does not separate them" in text
    assert "-0.0" not in text
