import json
from pathlib import Path

import pytest

from nppr.assess import assess
from nppr.errors import RunFolderError
from nppr.report import Report, read_report
from nppr.types import Metric

TOP = (
    "schema_version nppr_version classifier data budget seed settings results distributions"
    " flags grade timing environment rare precision radii"
)
ROW = (
    "source metric value low high confidence method claim direction split inputs draws calls"
    " flags error gamma"
)


@pytest.fixture(scope="module")
def report() -> Report:
    return assess(inputs=40, draws=8, sources="uniform,pgd:steps=2")


def test_fields_are_the_documented_ones(report: Report) -> None:
    content = json.loads(report.to_json())
    assert list(content) == TOP.split()
    for row in content["results"]:
        assert list(row) == ROW.split()
    documented = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    for name in [*content, *content["results"][0], *content["settings"], *content["environment"]]:
        assert f"`{name}`" in documented, name
    for metric in Metric:
        assert f"`{metric.value}`" in documented, metric


def test_round_trip(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(report.to_json())
    again = read_report(path)
    assert again.to_json() == report.to_json()


def test_headline_is_the_first_row(report: Report) -> None:
    row = report.headline("uniform", Metric.PR)
    assert row is not None
    assert row.method == "normal"
    assert report.headline("gaussian", Metric.PR) is None


def test_damage_is_named(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    with pytest.raises(RunFolderError, match="cannot read"):
        read_report(path)
    path.write_text(report.to_json()[:200])
    with pytest.raises(RunFolderError, match="cannot read"):
        read_report(path)
    content = json.loads(report.to_json())
    content["results"][0]["value"] = "high"
    path.write_text(json.dumps(content))
    with pytest.raises(RunFolderError, match=r"'results\.0\.value'"):
        read_report(path)
    content["schema_version"] = 99
    path.write_text(json.dumps(content))
    with pytest.raises(RunFolderError, match="schema version 1, got 99"):
        read_report(path)
