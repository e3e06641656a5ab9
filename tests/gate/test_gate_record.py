"""What a gate decided, as a table, JUnit XML, Markdown and JSON."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from nppr.core.tally import Claim, Direction, Metric
from nppr.report.gate_record import Decision, GateRecord
from nppr.search.search_record import BudgetRecord, ClassifierRecord
from nppr.statistics.sequential import Verdict


def decision(verdict: Verdict, metric: Metric = Metric.PR) -> Decision:
    searched = metric in (Metric.NPPR, Metric.AR)
    return Decision(
        requirement=f"{metric} <{verdict}> | >= 0.9",
        verdict=verdict,
        statement=f"{verdict}: a <statement> & more",
        why="the evidence is sufficient",
        at_least=0.9,
        value=0.93756,
        low=0.90449,
        high=0.96551,
        metric=metric,
        direction=Direction.UPPER_BOUND if searched else Direction.ESTIMATE,
        claim=Claim.POPULATION,
        source="uniform",
        inputs=128,
        draws=1280,
    )


def record(*decisions: Decision) -> GateRecord:
    return GateRecord(
        nppr_version="0.2.0",
        policy="nightly",
        classifier=ClassifierRecord(
            name="small", weights=None, mean=None, std=None, fingerprint="ab", features=None
        ),
        data="digits",
        data_fingerprint="cd",
        budget=BudgetRecord(norm="linf", radius=0.1, text="0.1"),
        seed=7,
        confidence=0.95,
        tested=len(decisions),
        calls=10,
        decisions=decisions,
    )


MIXED = record(
    *(decision(verdict, metric) for verdict in Verdict for metric in (Metric.PR, Metric.NPPR))
)


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        ([Verdict.HOLDS, Verdict.UNDECIDED, Verdict.VIOLATED], Verdict.VIOLATED),
        ([Verdict.HOLDS, Verdict.UNDECIDED], Verdict.UNDECIDED),
        ([Verdict.HOLDS, Verdict.HOLDS], Verdict.HOLDS),
    ],
)
def test_one_violated_or_undecided_requirement_decides(
    given: list[Verdict], verdict: Verdict
) -> None:
    assert record(*map(decision, given)).verdict is verdict


def test_junit_parses_and_its_counts_match() -> None:
    root = ElementTree.fromstring(MIXED.to_junit())
    suite = root.find("testsuite")
    assert suite is not None
    for each in (root, suite):
        assert (each.get("tests"), each.get("failures"), each.get("errors")) == ("6", "2", "2")
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == [d.requirement for d in MIXED.decisions]
    for case, found in zip(cases, MIXED.decisions, strict=True):
        failed, error = case.find("failure"), case.find("error")
        assert (failed is not None) == (found.verdict is Verdict.VIOLATED)
        assert (error is not None) == (found.verdict is Verdict.UNDECIDED)
        assert found.statement in str(case.findtext("system-out"))


def test_markdown_has_a_row_for_each_and_the_words_of_a_search() -> None:
    text = MIXED.to_markdown()
    rows = [line for line in text.splitlines() if line.startswith("| ")][2:]
    assert len(rows) == 6
    assert all(line.count(" | ") == rows[0].count(" | ") for line in rows)
    assert "holds for the noise found" in text
    assert "worse ones may exist" in text
    assert "93.8" in rows[0]
    assert "90.4 to 96.6" in rows[0], "ends are rounded outwards"
    assert "With 95 % confidence no verdict based on draws is wrong" in text


def test_only_a_search_holds_for_the_noise_found() -> None:
    assert decision(Verdict.HOLDS).status == "holds"
    assert decision(Verdict.HOLDS, Metric.NPPR).status == "holds for the noise found"
    assert decision(Verdict.VIOLATED, Metric.NPPR).status == "violated"
    assert "worse noise may exist" not in record(decision(Verdict.HOLDS)).to_markdown()


def test_json_is_the_record() -> None:
    assert GateRecord.model_validate_json(MIXED.to_json()) == MIXED
    assert json.loads(MIXED.to_json())["decisions"][0]["value"] == 0.93756
