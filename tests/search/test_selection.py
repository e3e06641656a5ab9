from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nppr.core.budget import Budget
from nppr.core.tally import Fit, FloatArray, Select
from nppr.data import Data, load_data
from nppr.errors import DataError
from nppr.measuring.measurement import probe
from nppr.models import PreparedClassifier, frozen, load_classifier, prepare
from nppr.noise.distribution import Distribution
from nppr.noise.family import Family
from nppr.noise.rungs import Dependency
from nppr.search.search_record import Diagnostics
from nppr.search.selection import (
    Candidate,
    CleanInputs,
    Judge,
    _best_overall,
    _best_per_class,
    _cross_fitted,
    best,
    candidates,
    diagnose,
    find_clean_inputs,
    weight_diagnostics,
)

CLASSES, CPU = 10, torch.device("cpu")
EMPTY = Distribution(Family(Dependency.INDEPENDENT, components=1), (1, 2, 2), 2)


def candidate(rates: FloatArray, name: str = "some") -> Candidate:
    return Candidate(name, EMPTY, rates)


@pytest.fixture(scope="module")
def data() -> Data:
    return load_data("digits").limit(fit_inputs=100, select_inputs=40)


@pytest.fixture(scope="module")
def classifier(data: Data) -> PreparedClassifier:
    known = load_classifier("digits-cnn", data=data)
    return prepare(known, probe(data.evaluate), classes=CLASSES, micro_batch=32)


@pytest.fixture(scope="module")
def judge(data: Data, classifier: PreparedClassifier) -> Judge:
    found = find_clean_inputs(classifier, data.select, features=True)
    return Judge(classifier, found, Budget.linf(0.4), draws=128, seed=0)


def distribution(dependency: Dependency, judge: Judge) -> Distribution:
    """Three components of uneven weight that are far apart."""
    torch.manual_seed(0)
    features = judge.inputs.features.shape[1]
    made = Distribution(Family(dependency, components=3), (1, 8, 8), CLASSES, features)
    with torch.no_grad():
        made.mixture.logits.copy_(torch.tensor([0.6, 0.3, 0.1]).log())
        made.mixture.means.mul_(2)
        if dependency.sees_label:
            made.mixture.label_weights.weight.normal_()
    return made.eval()


@pytest.fixture(scope="module")
def noisy(data: Data) -> Data:
    """The same with the labels of every third input of fit wrong."""
    labels = data.fit.labels.copy()
    labels[::3] = (labels[::3] + 1) % 10
    return replace(data, fit=replace(data.fit, labels=labels))


@pytest.fixture(scope="module")
def found(noisy: Data, classifier: PreparedClassifier) -> CleanInputs[Fit]:
    return find_clean_inputs(classifier, noisy.fit, features=True, keep_images=True)


def test_only_clean_correct_inputs_are_found(
    noisy: Data, classifier: PreparedClassifier, found: CleanInputs[Fit]
) -> None:
    x, y = noisy.fit.batch(np.arange(len(noisy.fit)))
    with frozen(classifier.original) as model, torch.inference_mode():
        correct = (model.logits(x).argmax(1) == y).numpy()
    np.testing.assert_array_equal(found.split.indices, noisy.fit.indices[correct])
    np.testing.assert_array_equal(found.split.labels, noisy.fit.labels[correct])
    assert 0 < len(found) <= 67
    assert found.calls == len(noisy.fit)


def test_features_are_those_of_the_model(
    classifier: PreparedClassifier, found: CleanInputs[Fit]
) -> None:
    x, _ = found.batch(np.arange(len(found)), CPU)
    with frozen(classifier.original) as model, torch.inference_mode():
        expected = model.features(x)
    torch.testing.assert_close(found.features, expected, atol=1e-4, rtol=1e-4)


def test_images_in_memory_are_those_of_the_data(
    noisy: Data, classifier: PreparedClassifier, found: CleanInputs[Fit]
) -> None:
    other = find_clean_inputs(classifier, noisy.fit, features=False)
    assert found.images is not None
    assert other.images is None
    positions = np.array([5, 0, 17])
    for kept, read in zip(found.batch(positions, CPU), other.batch(positions, CPU), strict=True):
        assert torch.equal(kept, read)


def test_without_features_there_are_none(noisy: Data, classifier: PreparedClassifier) -> None:
    found = find_clean_inputs(classifier, noisy.fit, features=False)
    assert found.features_by_index() is None
    assert found.features_at(np.arange(3), CPU) is None


def test_a_subset_is_nested_and_its_features_still_belong_to_its_inputs(
    found: CleanInputs[Fit],
) -> None:
    everything = found.features_by_index()
    assert everything is not None
    before: set[int] = set()
    for inputs in (1, 8, 30, len(found), 10**6):
        some = found.limit(inputs, seed=3)
        assert len(some) == min(inputs, len(found))
        assert before <= set(some.split.indices.tolist())
        before = set(some.split.indices.tolist())
        known = some.features_by_index()
        assert known is not None
        assert some.images is not None
        assert all(torch.equal(known[index], everything[index]) for index in known)
        x, y = some.split.batch(np.arange(len(some)))
        assert torch.equal(some.images, x)
        np.testing.assert_array_equal(some.split.labels, y.numpy())


def test_known_features_are_by_dataset_index(found: CleanInputs[Fit]) -> None:
    known = found.features_by_index()
    assert known is not None
    assert list(known) == found.split.indices.tolist()
    seen = found.features_at(np.array([7]), CPU)
    assert seen is not None
    assert torch.equal(known[int(found.split.indices[7])], seen[0])


def test_features_of_another_model_cost_calls(data: Data, classifier: PreparedClassifier) -> None:
    other = load_classifier("digits-cnn", data=data)
    split = data.fit.limit(20, 0, "fit-inputs")
    found = find_clean_inputs(classifier, split, features=True, feature_model=other)
    assert found.calls == 40
    own = find_clean_inputs(classifier, split, features=True)
    torch.testing.assert_close(found.features, own.features, atol=1e-4, rtol=1e-4)


def test_a_classifier_that_is_never_correct_is_one_clear_error(
    data: Data, classifier: PreparedClassifier
) -> None:
    correct = find_clean_inputs(classifier, data.fit, features=False).split
    wrong = replace(correct, labels=(correct.labels + 1) % 10)
    with pytest.raises(DataError, match="fit split must hold at least one clean-correct input"):
        find_clean_inputs(classifier, wrong, features=False)


@pytest.mark.slow
@pytest.mark.parametrize("dependency", [Dependency.INDEPENDENT, Dependency.LABEL])
def test_the_mixture_by_its_table_is_the_mixture_as_a_whole(
    dependency: Dependency, judge: Judge
) -> None:
    made = distribution(dependency, judge)
    found = candidates("it", made, judge)
    whole = judge.of(made)
    assert 0.05 < whole.mean() < 0.95
    assert found[0].value == pytest.approx(float(whole.mean()), abs=0.015)
    np.testing.assert_allclose(found[0].rates, whole, atol=0.2)


def test_variants_depend_on_what_the_noise_sees(judge: Judge) -> None:
    quick = replace(judge, draws=1)
    names = [
        [each.name for each in candidates("it", distribution(dependency, judge), quick)]
        for dependency in (Dependency.INDEPENDENT, Dependency.LABEL)
    ]
    assert names[0] == ["it", "it, largest weight", "it, best component"]
    assert names[1] == [*names[0], "it, best per class"]


def test_largest_weight_is_scored_as_it_will_be_measured(judge: Judge) -> None:
    found = candidates("it", distribution(Dependency.LABEL, judge), judge)
    np.testing.assert_array_equal(found[1].rates, judge.of(found[1].distribution))


def test_a_judge_counts_its_calls(judge: Judge) -> None:
    before = judge.calls
    judge.table(distribution(Dependency.LABEL, judge))
    assert judge.calls - before == 3 * len(judge.inputs) * judge.draws


def test_weights_are_a_distribution_for_every_input(judge: Judge) -> None:
    weights = judge.weights(distribution(Dependency.LABEL, judge))
    assert weights.shape == (len(judge.inputs), 3)
    np.testing.assert_allclose(weights.sum(1), 1)


rates = arrays(np.float64, 20, elements=st.integers(0, 16).map(lambda n: n / 16))


@given(rates, rates)
def test_a_parent_stays_unless_a_child_is_better_beyond_two_standard_errors(
    own: FloatArray, before: FloatArray
) -> None:
    child, parent = candidate(own, "child"), candidate(before, "parent")
    difference = own - before
    error = difference.std(ddof=1) / np.sqrt(len(own))
    expected = child if difference.mean() < -2 * error else parent
    assert best([child], [parent]) is expected
    assert best([child], [parent]).value <= parent.value


@given(st.lists(rates, min_size=1, max_size=4))
def test_without_parents_the_lowest_is_taken(each: list[FloatArray]) -> None:
    assert best([candidate(own) for own in each], []).value == min(own.mean() for own in each)


def test_a_tie_keeps_the_parent() -> None:
    child, parent = candidate(np.ones(5)), candidate(np.ones(5))
    assert best([child], [parent]) is parent


def test_of_several_parents_the_lowest_is_the_one_to_beat() -> None:
    parents = [candidate(np.full(8, value)) for value in (0.5, 0.2, 0.9)]
    assert best([candidate(np.full(8, 0.3))], parents) is parents[1]
    child = candidate(np.full(8, 0.1))
    assert best([child], parents) is child


def test_every_class_gets_its_own_component_and_absent_ones_that_of_all() -> None:
    table = np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.5]])
    labels = np.array([0, 0, 0, 2])
    assert _best_per_class(table, labels, 4).tolist() == [0, 0, 1, 0]


def test_cross_fitting_has_no_bias_where_all_components_are_alike() -> None:
    generator = np.random.default_rng(0)
    crossed, naive = [], []

    for _ in range(600):
        table = generator.binomial(4, 0.5, (24, 7)) / 4
        crossed.append(_cross_fitted(table, np.arange(24) % 2, 2, _best_overall).mean())
        naive.append(table.mean(0).min())
    error = float(np.std(crossed) / np.sqrt(len(crossed)))
    assert abs(np.mean(crossed) - 0.5) < 4 * error
    assert np.mean(naive) < 0.5 - 20 * error


def test_cross_fitting_finds_a_component_that_is_really_lower() -> None:
    table = np.tile([0.9, 0.2, 0.8], (10, 1))
    labels = np.arange(10) % 2
    found = _cross_fitted(table, labels, 2, _best_per_class)
    np.testing.assert_array_equal(found, np.full(10, 0.2))


@pytest.fixture(scope="module")
def inputs(data: Data, classifier: PreparedClassifier) -> CleanInputs[Select]:
    return find_clean_inputs(classifier, data.select, features=False)


def noise(
    classifier: PreparedClassifier,
    inputs: CleanInputs[Select],
    budget: Budget,
    floor: float,
    mean: float,
) -> Diagnostics:
    family = Family(Dependency.LABEL, components=1, floor=floor, min_std=1e-6)
    made = Distribution(family, (1, 8, 8), 10)
    with torch.no_grad():
        made.mixture.means.fill_(mean)
        made.mixture.raw.fill_(-30)
    return diagnose(made, made, Judge(classifier, inputs, budget, draws=1, seed=0))


def test_even_weights_use_all_components() -> None:
    found = weight_diagnostics(np.full((5, 4), 0.25))
    expected = {
        "entropy_ratio": 1, "max_weight": 0.25, "min_weight": 0.25, "std_weight": 0,
        "effective_components": 4,
    }  # fmt: skip
    assert found == pytest.approx(expected)


def test_one_component_per_context_is_sharp_although_all_are_used() -> None:
    found = weight_diagnostics(np.eye(3))
    assert found["entropy_ratio"] == pytest.approx(0)
    assert found["effective_components"] == pytest.approx(1)
    assert found["max_weight"] == 1


def test_a_single_component_has_ratio_1() -> None:
    assert weight_diagnostics(np.ones((3, 1)))["entropy_ratio"] == 1


def test_a_fixed_pattern_has_no_spread(
    classifier: PreparedClassifier, inputs: CleanInputs[Select]
) -> None:
    found = noise(classifier, inputs, Budget.linf(0.1), 0.0, 5.0)
    assert found.realised_std < 1e-3
    assert found.share_at_edge == 1
    assert found.scale == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("rho", [0.5, 1.0])
def test_a_floor_has_the_spread_of_its_uniform_noise(
    rho: float, classifier: PreparedClassifier, inputs: CleanInputs[Select]
) -> None:
    found = noise(classifier, inputs, Budget.linf(0.1), rho, 0.0)
    assert found.realised_std == pytest.approx(rho / math.sqrt(3), rel=0.03)
    assert found.share_at_edge == pytest.approx(0.01 if rho == 1 else 0, abs=0.005)
    assert found.floor == rho


def test_the_spread_does_not_depend_on_the_radius(
    classifier: PreparedClassifier, inputs: CleanInputs[Select]
) -> None:
    small, large = (
        noise(classifier, inputs, Budget.l2(radius), 0.5, 0.0).realised_std for radius in (0.1, 2.0)
    )
    assert small == pytest.approx(large, rel=1e-4)
