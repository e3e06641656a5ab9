from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from nppr.budget import Budget
from nppr.classifiers import Prepared, load_classifier, prepare
from nppr.data import Data, load_data
from nppr.noise import Dependency, Family
from nppr.noise.distribution import Distribution
from nppr.errors import NoFitDataError
from nppr.search import SearchSettings, default_settings, paper_settings
from nppr.search.learned_noise import LearnedNoise
from nppr.search.search import Search
from nppr.fit.search import FAMILY, FORWARD_SHARE  # FIXME
from nppr.fit.select import Candidate  # FIXME
from nppr.measure import probe
from nppr.sources import Uniform

BUDGET = Budget.linf(0.1)
SMALL = default_settings(Family(Dependency.JOINT, components=2), calls=2048, inputs=64)


@pytest.fixture(scope="module")
def data() -> Data:
    return load_data("digits")


@pytest.fixture(scope="module")
def classifier(data: Data) -> Prepared:
    known = load_classifier("digits-cnn", data=data)
    return prepare(known, probe(data.evaluate), classes=10, micro_batch=64)


@pytest.fixture(scope="module")
def small(data: Data) -> Data:
    return data.limit(fit_inputs=150, select_inputs=60)


def searched(settings: SearchSettings, classifier: Prepared, data: Data) -> list[LearnedNoise]:
    return Search(settings, classifier, data, BUDGET, references=(Uniform(BUDGET),)).run()


def test_the_three_parts_share_no_input(classifier: Prepared, data: Data) -> None:
    search = Search(SMALL, classifier, data, BUDGET)
    search.find_inputs()
    fit, select = search._fit_inputs.part, search._select_inputs.part
    assert set(fit.indices.tolist()) <= set(data.fit.indices.tolist())
    assert set(select.indices.tolist()) <= set(data.select.indices.tolist())
    for first, second in ((fit, select), (fit, data.evaluate), (select, data.evaluate)):
        assert not set(first.indices.tolist()) & set(second.indices.tolist())


def test_the_evaluate_part_is_not_looked_at(classifier: Prepared, small: Data) -> None:
    labels = np.zeros_like(small.evaluate.labels)
    other = replace(small, evaluate=replace(small.evaluate, labels=labels))
    first, second = (searched(SMALL, classifier, each) for each in (small, other))
    assert [each.fit for each in first] == [each.fit for each in second]


def test_forward_only_calls_stay_within_their_share(classifier: Prepared, data: Data) -> None:
    settings = default_settings(Family(components=7), calls=30_000, inputs=256, floors=(0.0,))
    search = Search(settings, classifier, data, BUDGET, references=(Uniform(BUDGET),))
    (outcome,) = search.run()
    assert outcome.fit["fit_calls"] == search.fit_calls <= 30_000
    assert outcome.fit["forward_calls"] == search.clean_calls + search.forward_calls
    assert outcome.fit["forward_calls"] <= FORWARD_SHARE * outcome.fit["fit_calls"]


def test_every_seed_gives_every_floor(classifier: Prepared, small: Data) -> None:
    found = searched(replace(SMALL, seeds=2, floors=(0.0, 1.0)), classifier, small)
    assert [(each.number, each.floor) for each in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    first, second = found[0].fit["stages"], found[2].fit["stages"]
    assert first[0]["loss"] != second[0]["loss"]
    assert searched(replace(SMALL, floors=(0.0,)), classifier, small)[0].fit["stages"] == first


def test_a_child_that_is_not_better_is_its_parent(
    classifier: Prepared, small: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parents_only(own: Sequence[Candidate], parents: Sequence[Candidate]) -> Candidate:
        return min(parents or own, key=lambda each: each.value)

    monkeypatch.setattr("nppr.fit.search.best", parents_only)
    (outcome,) = searched(replace(SMALL, floors=(0.0,)), classifier, small)
    assert outcome.fit["selected"].startswith("independent")
    assert outcome.distribution.family.dependency is Dependency.INDEPENDENT
    assert {stage["selected"] for stage in outcome.fit["stages"]} == {outcome.fit["selected"]}
    parent, *_, child = outcome.fit["stages"]
    assert child["select_values"][outcome.fit["selected"]] == outcome.select_value
    assert parent["dependency"] == child["dependency"] == "independent"


def test_what_was_chosen_is_lowest_or_a_parent(classifier: Prepared, small: Data) -> None:
    for outcome in searched(SMALL, classifier, small):
        for stage in outcome.fit["stages"]:
            values = stage["select_values"]
            own = [name for name in values if name.startswith(stage["dependency"])]
            if stage["selected"] in own:
                assert values[stage["selected"]] == min(values[name] for name in own)
        last = outcome.fit["stages"][-1]
        assert outcome.select_value == last["select_values"][outcome.fit["selected"]]


def test_the_family_is_compared_with_reference_noises(classifier: Prepared, small: Data) -> None:
    for outcome in searched(SMALL, classifier, small):
        found = outcome.fit["with_references"]
        assert set(found["select_values"]) == {FAMILY, "uniform"}
        assert found["select_values"][FAMILY] == outcome.select_value
        assert found["select_values"][found["winner"]] == min(found["select_values"].values())


@pytest.mark.parametrize("part", ["fit", "select"])
def test_data_without_a_part_to_fit_or_choose_on_are_refused(
    part: str, classifier: Prepared, small: Data
) -> None:
    known = getattr(small, part)
    empty = replace(known, indices=known.indices[:0], labels=known.labels[:0])
    with pytest.raises(NoFitDataError, match=f"`data` must have a {part} part"):
        searched(SMALL, classifier, replace(small, **{part: empty}))


def test_the_papers_preset_chooses_nothing(classifier: Prepared, small: Data) -> None:
    settings = paper_settings(Family(Dependency.LABEL, components=2), inputs=150, calls=4096)
    (outcome,) = searched(settings, classifier, small)
    assert outcome.select_value is None
    (stage,) = outcome.fit["stages"]
    assert stage["forward_calls"] == 0
    assert len(stage["loss"]) == 2


def test_a_search_leaves_the_callers_random_numbers_alone(
    classifier: Prepared, small: Data
) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    (outcome,) = searched(replace(SMALL, floors=(0.0,)), classifier, small)
    assert torch.equal(torch.rand(2), expected)
    assert isinstance(outcome.distribution, Distribution)
