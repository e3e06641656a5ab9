"""The answer, the robustness line and the citation: the number, its interval, and its limits."""

from __future__ import annotations

import re
from typing import Any

import pytest

from helpers import stated
from nppr.core.tally import Claim, Metric
from nppr.report import Number, Report
from nppr.report.ladder_tables import story_text
from nppr.report.number import StatedInterval
from nppr.report.page import render
from nppr.report.page.answer import lanes_of, run_text
from nppr.report.printed_numbers import Numbers, percent
from nppr.report.results_table import as_text
from report.page.made_runs import RUNGS, failed, made_report, with_ladder, with_structures


def words(report: Report, section: str = "answer") -> str:
    """The text of a section, without markup."""
    part = render(report).split(f'<section id="{section}"')[1].split("</section>")[0]
    plain = re.sub("<[^>]*>", "", part.partition(">")[2])
    return re.sub(r"\s+", " ", plain.replace("&nbsp;", " ").replace("&#39;", "'"))


def changed(report: Report, source: str, metric: Metric, **values: Any) -> Report:
    """The report with other values in the first row of a source and metric."""
    found = report.headline(source, metric)
    rows = [row.model_copy(update=values) if row is found else row for row in report.numbers]
    return report.model_copy(update={"numbers": tuple(rows)})


def of(report: Report, source: str, metric: Metric = Metric.NPPR) -> Number:
    row = report.headline(source, metric)
    assert row is not None
    assert row.value is not None
    return row


def at_most(row: Number, interval: StatedInterval, sure: str = " with 95 % confidence") -> str:
    """What may be claimed of an upper bound."""
    assert row.value is not None
    return f"at most {percent(interval.high, 'at-most')} %{sure} ({percent(row.value)} % observed)"


def test_an_interval_outside_its_regime_is_not_quoted() -> None:
    report, _ = made_report()
    row = of(report, "nppr:joint")
    assert stated(row).is_untested
    sure = row.guaranteed
    assert sure is not None
    assert sure.method == "betting"
    text = words(report)
    assert "Of the inputs on which it is correct without noise, this classifier" in text
    made_of = "(nppr:joint, of any structure, even one fixed pattern)"
    assert f"its class by a rule {made_of} on {at_most(row, sure)}." in text
    assert "only the upper end of the interval applies to the worst noise too" in text
    assert "(betting, guaranteed)" in text
    assert "The normal approximation, outside the regime it was tested in, gives" in text
    assert at_most(row, sure) in run_text(report)
    [lane] = [lane for lane in lanes_of(report) if lane.row is row]
    assert lane.interval is sure
    assert f"{at_most(row, sure, '')}joint, any" in words(report, "ladder")
    assert "the guaranteed one is shown (betting)" in words(report, "ladder")


def test_an_interval_within_its_regime_is_quoted() -> None:
    report, _ = made_report()
    first, *others = of(report, "nppr:joint").intervals
    inside = (first.model_copy(update={"flags": ()}), *others)
    report = changed(report, "nppr:joint", Metric.NPPR, intervals=inside)
    row = of(report, "nppr:joint")
    assert row.shown is row.own
    text = words(report)
    assert at_most(row, stated(row)) in text
    assert "(normal, approximate)" in text
    assert "Guaranteed with the same confidence: at most" in text


def test_the_table_claims_no_joint_confidence() -> None:
    text = words(made_report()[0])
    assert "Each number holds with 95 % confidence on its own, not all of them together" in text
    assert "each with 95 % confidence. Which rung" not in text


def test_noise_that_came_out_lower_is_named() -> None:
    report, _ = made_report()
    assert "came out lower" not in words(report)
    lowered = changed(report, "gaussian", Metric.PR, value=0.01)
    assert "The noise quoted was chosen on the select split." in words(lowered)
    assert "On these inputs gaussian came out lower: 1.0 %" in words(lowered)
    assert "the upper bound above is not the lowest one measured" in words(lowered)


@pytest.mark.parametrize("only", ["all", "bound"])
def test_bounds_name_their_noise_and_both_claims(only: str) -> None:
    report, _ = made_report(only=only)
    population = of(report, "bound:ratio=1+10:c=10", Metric.BOUND).population
    assert population is not None
    assert population.claim is Claim.POPULATION
    expected = f"for the population: at least {percent(population.low, 'at-least')} %"
    assert expected in words(report)
    assert expected in words(report, "ladder")
    assert "at most 10 times that of laplace noise" in words(report)
    assert "all noise whose density is at most 10 times that of laplace" in words(report, "ladder")
    assert "laplace" in words(report, "comparison")
    assert "laplace" in as_text(report, 120)
    assert ("There is no NPPR in this run" in words(report)) == (only == "bound")


def test_claims_are_not_mixed() -> None:
    report, _ = made_report()
    row = of(report, "bound:ratio=1+10:c=1", Metric.BOUND)
    assert stated(row).claim is Claim.TEST_SET
    assert row.guaranteed is None
    [line] = [each for each in as_text(report, 120).splitlines() if "bound:ratio=1+10:c=1 " in each]
    assert line.count(f"{100 * (row.value or 0):.1f}") == 2


def test_attacks_are_reported_where_no_noise_was_searched_for() -> None:
    noise, attack = made_report(only="noise")[0], made_report(only="attack")[0]
    both = noise.model_copy(update={"numbers": (*noise.numbers, *attack.numbers[1:])})
    row = of(both, "merged", Metric.AR)
    most = at_most(row, stated(row))
    expected = f"Attacks within the same budget: of these inputs, {most} withstand them"
    assert expected in words(both)
    assert "Attacks within" not in words(noise)


def test_noise_that_sees_the_classifier_is_not_called_fixed() -> None:
    report, _ = made_report(only="noise")
    other = [
        row.with_subject(source="weak-adversary", fixed=False).model_copy(update={"value": 0.1})
        for row in report.numbers
        if row.source == "gaussian"
    ]
    more = report.model_copy(update={"numbers": (*report.numbers, *other)})
    assert "under the worst noise measured (weak-adversary)" in words(more)
    assert "under the worst fixed noise measured (" in words(report)
    line = words(more, "ladder")
    assert "weak-adversary, other noise" in line
    assert "gaussian, the lowest fixed noise observed" in line
    assert "uniform, the highest observed" in line


def test_a_narrower_set_is_named() -> None:
    report, _ = made_report()
    kept = [row for row in report.numbers if row.learned is None or row.learned.floor]
    gone = failed("nppr", Metric.NPPR, "no memory.")
    without = report.model_copy(
        update={"numbers": (*kept, gone), "distributions": report.distributions[1:]}
    )
    text = words(without)
    assert "of a narrower admissible set, nppr:joint:floor=0.5: for nppr the worst noise" in text
    assert "no memory." in text
    assert "narrower" not in words(report)


def test_lanes_go_down_the_ladder() -> None:
    lanes = lanes_of(made_report()[0])
    assert [lane.name for lane in lanes] == ["PR", "PR", "NPPR", "NPPR", "AR", *["at least"] * 2]
    assert [lane.row.is_upper_bound for lane in lanes] == [False] * 2 + [True] * 3 + [False] * 2
    assert [lane.row.is_lower_bound for lane in lanes] == [False] * 5 + [True] * 2
    assert lanes[4].row.source == "merged"
    whole = [lane.what for lane in lanes_of(with_ladder(made_report()[0])) if lane.name == "NPPR"]
    assert whole == [f"{rung.value}, any{floor}" for rung in RUNGS for floor in ("", ", rho 0.5")]


def test_of_many_floors_the_lanes_show_the_ends() -> None:
    report = with_ladder(made_report()[0])
    between = [
        row.with_subject(floor=0.1 + row.learned.floor / 2).model_copy(update={"tally": None})
        for row in report.numbers
        if row.learned
    ]
    more = report.model_copy(update={"numbers": (*report.numbers, *between)})
    assert {lane.row.learned.floor for lane in lanes_of(more) if lane.row.learned} == {0.0, 0.5}


def test_the_ladder_is_on_the_page() -> None:
    report = with_ladder(made_report()[0])
    text = words(report)
    for rung in RUNGS:
        assert rung.threat_of() in text
    assert "an attack: the worst perturbation found for each input" in text
    assert "One search was made, so how much the number depends on its random numbers" in text
    ladder = words(report, "ladder")
    assert "How well each worst noise was searched for" in ladder
    assert "the lowest other source of the same set" in ladder
    assert "20/input" in ladder
    first = [rung.model_copy(update={"seeds": (0.1, 0.125)}) for rung in report.ladder]
    text = words(report.model_copy(update={"ladder": tuple(first)}))
    assert "Searches that differ in their random numbers are up to 2.5 percentage points" in text
    admissible = words(report, "admissible")
    assert "rho mostly acts as a smaller radius" in admissible
    assert "the same pattern at (1 - rho) r: 55.0 %" in admissible
    assert "How well" not in words(made_report()[0], "ladder")


def test_the_line_explains_only_what_is_there() -> None:
    for only, absent in (
        ("noise", "lower bound"),
        ("noise", "upper bound"),
        ("bound", "upper bound"),
    ):
        assert absent not in words(made_report(only=only)[0], "ladder")


def test_the_citation_holds_the_run() -> None:
    report, _ = made_report()
    text = run_text(report)
    assert "resnet20 on pictures, budget linf 8/255, seed 0, 120 inputs, nppr 0.1.0" in text
    assert "Under the worst admissible noise (nppr:joint, " in text
    assert "the population" in text
    assert ", the fraction of correct draws is at least " in run_text(made_report(only="bound")[0])
    paper = words(report, "cite")
    assert paper.count("{") == paper.count("}") == 5


def test_the_answer_leads_with_what_the_noise_is_made_of() -> None:
    report = with_structures(made_report()[0])
    text, numbers = words(report), Numbers(report)
    story = text.index(story_text(numbers))
    assert story < text.index("Of the inputs on which it is correct without noise")
    assert "one fixed pattern is allowed, like dirt on the lens" in text
    assert "every pixel varies on its own, like sensor noise" in text
    assert "On resnet20, one 1x1 filter for all inputs left 58.2 %" in text
    assert "The number for nppr:joint is an upper bound" in text
    ladder = words(report, "ladder")
    assert "Each structure contains those before it, and each rung of a structure" in ladder
    assert "label, stationary" in ladder
