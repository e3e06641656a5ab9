import pytest

from nppr.assess import assess
from nppr.report import Report
from nppr.types import Metric


@pytest.fixture(scope="module")
def report() -> Report:
    return assess(inputs=60, draws=8, sources="uniform,gaussian:scale=3,pgd:steps=3")


def test_ar_comes_before_pr_smallest_first(report: Report) -> None:
    lines = report.table(120).splitlines()
    rows = [line.split() for line in lines if "%" not in line and line.count(".") > 2]
    metrics = [cells[0] for cells in rows]
    assert metrics == ["accuracy", "AR", "AR", "PR", "PR"]
    values = [
        row.value for row in report.results if row.metric is Metric.PR and row.method == "normal"
    ]
    printed = [cells[2] for cells in rows if cells[0] == "PR"]
    assert printed == [f"{100 * value:.1f}" for value in sorted(v for v in values if v is not None)]


def test_intervals_budget_seed_and_draws_stand_beside_the_number(report: Report) -> None:
    text = report.table(120)
    assert "budget linf 0.1, seed 0" in text
    counted = report.headline("uniform", Metric.PR)
    assert counted is not None
    assert f"60 inputs of its evaluate part, {counted.inputs} right without noise" in text
    assert "an upper bound" in text
    assert "* approximate-interval" in text
    row = report.headline("uniform", Metric.PR)
    assert row is not None
    assert row.low is not None
    assert row.high is not None
    assert f"{100 * row.low:.1f}-{100 * row.high:.1f}" in text


@pytest.mark.parametrize("width", [80, 120])
def test_it_fits_the_console(report: Report, width: int) -> None:
    lines = report.table(width).splitlines()
    assert max(len(line) for line in lines) <= width
    assert not any("…" in line for line in lines)
    assert any("gaussian:scale=3" in line for line in lines)
    assert any("█" in line for line in lines) == (width == 120)


def test_a_failed_source_is_shown(report: Report) -> None:
    from nppr.report.schema import failed

    row = failed("broken", Metric.PR, 0.95, "why")
    text = report.model_copy(update={"results": (*report.results, row)}).table()
    assert "broken" in text
    assert "failed" in text
