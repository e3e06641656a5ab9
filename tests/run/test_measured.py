"""Measurements of one run as they come in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from helpers import Broken, Stray, half_classifier, two_class_data
from nppr.budget import Budget
from nppr.classifiers import load_classifier, prepare
from nppr.measure import measure, probe
from nppr.run import Session, Settings
from nppr.run.measured import Measured
from nppr.sources import Clean, Uniform, parse_sources
from nppr.tally import Metric, PerturbationSource

BUDGET = Budget.linf(0.2)


def begun(**settings: object) -> Measured:
    data = two_class_data(60)
    known = load_classifier(half_classifier(), data=data)
    classifier = prepare(known, probe(data.evaluate), classes=2, micro_batch=16)
    session = Session(Settings(draws=4, **settings), data, classifier, None, None)  # type: ignore[arg-type]
    everything = np.ones(len(data.evaluate), bool)
    return Measured(session, session.measure(Clean(), everything))


def added(measured: Measured, sources: Sequence[PerturbationSource]) -> Measured:
    for source in sources:
        measured.add(source)
    return measured


def test_a_source_that_fails_gets_a_row_and_the_others_go_on() -> None:
    measured = added(begun(), [Broken(BUDGET, 0.0, "broken"), Uniform(BUDGET)])
    assert list(measured.tallies) == measured.inside == ["uniform"]
    assert [row.source for row in measured.results if row.error] == ["broken"]
    assert "this source is broken" in str(measured.results[0].error)


def test_a_source_without_a_budget_is_not_merged() -> None:
    attack = parse_sources("pgd:steps=2", BUDGET)
    measured = added(begun(), [*attack, Stray(None, -1.0), Uniform(BUDGET)])
    assert measured.inside == ["pgd:steps=2", "uniform"]
    measured.merge([*attack, Uniform(BUDGET)])
    row = measured.results[-1]
    assert (row.source, row.metric) == ("merged", Metric.AR)
    right = measured.tallies["pgd:steps=2"].unbroken & measured.tallies["uniform"].unbroken
    assert (right & ~measured.tallies["stray"].unbroken).any()
    assert row.value == pytest.approx(right.mean())


def test_noise_alone_is_not_merged() -> None:
    measured = added(begun(), [Uniform(BUDGET), Stray(BUDGET, 0.1)])
    before = len(measured.results)
    measured.merge([Uniform(BUDGET), Stray(BUDGET, 0.1)])
    assert len(measured.results) == before


def test_only_merged_attacks_what_stands_and_gives_no_row_of_its_own() -> None:
    attack = parse_sources("pgd:steps=2", BUDGET)
    measured = added(begun(only_merged=True), [Uniform(BUDGET)])
    standing = measured.tallies["uniform"].unbroken
    assert 0 < standing.sum() < 60
    added(measured, attack)
    assert not [row for row in measured.results if row.metric is Metric.AR]
    session = measured.session
    whole = measure(attack[0], session.classifier, session.data.evaluate, draws=4)
    found = measured.tallies["pgd:steps=2"]
    np.testing.assert_array_equal(found.unbroken, whole.unbroken & standing)
    assert found.calls < whole.calls
