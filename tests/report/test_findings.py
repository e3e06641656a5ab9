"""What results state together, read off their fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import stated
from nppr.core.tally import Claim, Metric
from nppr.errors import RunFolderError
from nppr.noise import Dependency
from nppr.report import Number, PerInput, Report
from nppr.report.findings import (
    bounds_of,
    find_attacked,
    find_lower,
    headline_of,
    lines_of,
    measured_source,
    missing_search,
    not_followed,
    shares_of,
    table_rows,
)
from report.page.made_runs import (
    RARE,
    RUNGS,
    failed,
    made_report,
    name_of,
    with_ladder,
    won_by,
)

MADE, PER_INPUT = made_report()


def of(report: Report, name: str, metric: Metric = Metric.NPPR) -> Number:
    row = report.headline(name, metric)
    assert row is not None
    assert row.value is not None
    return row


def changed(report: Report, name: str, metric: Metric, **values: Any) -> Report:
    """The report with other values in the first row of a name and metric."""
    found = report.headline(name, metric)
    rows = [row.model_copy(update=values) if row is found else row for row in report.numbers]
    return report.model_copy(update={"numbers": tuple(rows)})


def quoted(report: Report) -> str:
    row = headline_of(report)
    assert row is not None
    return row.name


def test_the_headline_is_the_lowest_learned_rung() -> None:
    report = with_ladder(MADE)
    assert [row.name for row in table_rows(report) if row.metric is Metric.NPPR] == [
        name_of(floor, rung) for floor in (0.0, 0.5) for rung in RUNGS
    ]
    assert quoted(report) == "nppr:joint"
    assert find_lower(report, of(report, "nppr:joint")) == []  # per-input contains it
    lower = changed(report, "nppr:label", Metric.NPPR, value=0.01)
    assert [row.name for row in find_lower(lower, of(lower, "nppr:joint"))] == ["nppr:label"]
    less = [row for row in report.numbers if row.subject.noise != "nppr:joint"]
    gone = failed("nppr", Metric.NPPR, "no memory.", rung=Dependency.JOINT)
    lacking = report.model_copy(update={"numbers": (*less, gone)})
    assert quoted(lacking) == "nppr:label"
    assert missing_search(lacking) is gone


def test_rows_go_from_ar_to_pr_smallest_first() -> None:
    rows = table_rows(MADE)
    assert [row.name for row in rows] == [
        "clean", "pgd", "merged", "nppr:joint", "nppr:joint:floor=0.5", "gaussian", "uniform",
        "bound:ratio=1+10:c=10", "bound:ratio=1+10:c=1",
    ]  # fmt: skip
    assert "nppr:joint (lowest of the set)" in [
        row.name for row in table_rows(won_by("gaussian", MADE))
    ]


def test_the_headline_is_the_widest_set_not_the_lowest_number() -> None:
    assert quoted(MADE) == "nppr:joint"
    assert quoted(changed(MADE, "nppr:joint:floor=0.5", Metric.NPPR, value=0.001)) == "nppr:joint"
    assert quoted(won_by("gaussian", MADE)) == "nppr:joint (lowest of the set)"


@pytest.mark.parametrize(
    ("only", "name"),
    [
        ("noise", "gaussian"),
        ("attack", "pgd"),
        ("bound", "bound:ratio=1+10:c=10"),
        ("clean", "clean"),
    ],
)
def test_without_nppr_the_lowest_number_is_quoted(only: str, name: str) -> None:
    assert quoted(made_report(only=only)[0]) == name


def test_a_failed_search_is_missing() -> None:
    found = missing_search(made_report(only="failed")[0])
    assert found is not None
    assert found.error
    narrow = [
        row for row in MADE.numbers if not row.name.startswith("nppr:joint") or "floor" in row.name
    ]
    rows = (*narrow, failed("nppr", Metric.NPPR, "no memory."))
    narrower = MADE.model_copy(update={"numbers": rows})
    assert quoted(narrower) == "nppr:joint:floor=0.5"
    assert missing_search(narrower) is rows[-1]
    assert missing_search(MADE) is None


def test_guaranteed_intervals_are_of_the_same_number_and_claim() -> None:
    bounds = [row for row in table_rows(MADE) if row.metric is Metric.BOUND]
    others = [row for row in table_rows(MADE) if row.metric is not Metric.BOUND]
    assert bounds
    assert others
    assert [row.guaranteed for row in bounds] == [None] * len(bounds)
    for row in others:
        sure = row.guaranteed
        assert sure is not None
        assert sure in row.intervals
        assert sure.claim is stated(row).claim
        assert sure.method in ("betting", "clopper-pearson")


def test_an_interval_outside_its_regime_is_replaced() -> None:
    row = of(MADE, "nppr:joint")
    assert stated(row).is_untested
    assert row.shown is not None
    assert row.shown.method == "betting"
    first, *others = row.intervals
    inside = row.with_intervals(first.model_copy(update={"flags": ()}), *others)
    assert inside.shown is inside.own


def test_bounds_have_both_claims() -> None:
    assert bounds_of(MADE)
    for row in bounds_of(MADE):
        assert row.population is not None
        assert (stated(row).claim, row.population.claim) == (Claim.TEST_SET, Claim.POPULATION)
        assert row.value == stated(row).low
        assert row.with_intervals(row.population).population is None


def test_fixed_noise_is_declared_by_its_source() -> None:
    row = of(MADE, "gaussian", Metric.PR)
    assert row.is_fixed
    assert not row.with_subject(fixed=False).is_fixed
    assert not of(MADE, "nppr:joint").is_fixed


def test_a_repeated_fit_is_no_lower_noise() -> None:
    row = of(MADE, "nppr:joint")
    repeated = row.with_subject(fit_seed=1).model_copy(
        update={"value": 0.0, "tally": "nppr:joint:fit-seed=1"}
    )
    more = MADE.model_copy(update={"numbers": (*MADE.numbers, repeated)})
    assert find_lower(more, row) == []
    assert quoted(more) == "nppr:joint"
    lowered = changed(MADE, "gaussian", Metric.PR, value=0.01)
    assert [other.name for other in find_lower(lowered, row)] == ["gaussian"]


def test_attacks_are_quoted_together() -> None:
    found = find_attacked(MADE)
    assert found is not None
    assert found.source == "merged"
    assert find_attacked(made_report(only="noise")[0]) is None


def test_noise_that_splitting_did_not_follow() -> None:
    assert not_followed(MADE) == []
    report = MADE.model_copy(update={"rare": (RARE,)})
    assert not_followed(report) == [
        "gaussian",
        "uniform",
        "bound:ratio=1+10",
        "nppr:joint:floor=0.5",
    ]


def test_lines_behind_a_result() -> None:
    assert measured_source(MADE, PER_INPUT, of(MADE, "nppr:joint")) == "nppr:joint"
    won = won_by("gaussian", MADE)
    assert measured_source(won, PER_INPUT, of(won, "nppr:joint (lowest of the set)")) == "gaussian"
    other = won_by("laplace", MADE)
    assert (
        measured_source(other, PER_INPUT, of(other, "nppr:joint (lowest of the set)"))
        == "nppr:joint"
    )
    assert measured_source(MADE, PER_INPUT, of(MADE, "merged", Metric.AR)) == "pgd"


def test_shares_are_the_numbers_of_the_report(tmp_path: Path) -> None:
    lines = lines_of(PER_INPUT, tmp_path)
    shares = shares_of(MADE, lines, tmp_path)
    expected = {
        (Metric.ACCURACY, "clean"), (Metric.AR, "pgd"), (Metric.PR, "gaussian"),
        (Metric.PR, "uniform"), (Metric.NPPR, "nppr:joint"), (Metric.NPPR, "nppr:joint:floor=0.5"),
        (Metric.NPPR, "nppr:joint (lowest of the set)"),
        (Metric.NPPR, "nppr:joint:floor=0.5 (lowest of the set)"),
    }  # fmt: skip
    assert set(shares) == expected
    for (metric, name), share in shares.items():
        assert share.value == pytest.approx(of(MADE, name, metric).value)
    # Nothing else was merged into the attack of this report, whose noise breaks inputs too.
    broken = np.all([each["correct"] == each["draws"] for each in lines.values()], axis=0)
    merged = float(broken[lines["pgd"]["clean_correct"] == 1].mean())
    both = changed(MADE, "merged", Metric.AR, value=merged)
    assert shares_of(both, lines, tmp_path)[Metric.AR, "merged"].value == pytest.approx(merged)


def test_lines_of_another_run_are_refused(tmp_path: Path) -> None:
    lines = lines_of(PER_INPUT, tmp_path)
    with pytest.raises(RunFolderError, match="the PR of 'gaussian' is"):
        shares_of(changed(MADE, "gaussian", Metric.PR, value=0.5), lines, tmp_path)
    columns = {name: column.copy() for name, column in PER_INPUT.columns.items()}
    columns["clean_correct"][0] = 0
    with pytest.raises(RunFolderError, match="the same inputs for every source"):
        lines_of(PerInput(columns), tmp_path)
